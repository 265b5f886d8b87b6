"""Live sessions: the router in wall time."""
