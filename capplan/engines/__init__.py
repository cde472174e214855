"""Engines that a plan may be of: what the name of each means, a file each."""
