"""Settings of commands, in groups: each flag, scenario key and argument once."""
