"""The engine process: torch lives here and nowhere else; no Qt."""
