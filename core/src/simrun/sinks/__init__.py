"""Storage that the core brings along."""
