"""Tokens and cost by day, session, model and key."""
