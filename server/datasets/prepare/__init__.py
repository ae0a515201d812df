"""Checks data sets and turns them into tokens: a short-lived process of the daemon."""
