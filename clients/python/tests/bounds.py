"""How long tests wait for a real event, in seconds: far above what a busy machine needs, so that only a hang fails."""

EVENT_TIMEOUT = 120
