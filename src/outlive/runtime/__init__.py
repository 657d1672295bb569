"""The loops the features share: the keeper, the watchdog, the session's heartbeat."""
