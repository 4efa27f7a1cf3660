"""The page of a report: runs by target and lead time, score card, maps, charts, words."""
