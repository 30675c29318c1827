"""The transport between a controller and a replica in another process: frames, authentication, and what is sent again
after a break.
"""
