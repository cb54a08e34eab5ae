"""The embedded Tinker-compatible training service and the small model it trains."""
