"""Lower bounds on replicas under any scheduler, and certificates that prove them."""
