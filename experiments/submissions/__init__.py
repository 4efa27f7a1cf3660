"""Submissions to a leaderboard: pack a run, check what others pack, and make a page of them."""
