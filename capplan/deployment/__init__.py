"""What runs where: engines and their policies, replicas, pools of them, deployments."""
