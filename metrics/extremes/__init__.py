"""How extreme a forecast is for its place and season, and scores that look there."""
