"""What a driver promises: small protocols, and its capabilities as data."""
