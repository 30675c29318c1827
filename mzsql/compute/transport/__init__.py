"""The protocol between a controller and a replica of another process: frames, who may speak, what is told again after a break."""
