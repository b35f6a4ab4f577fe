"""Measures of users from recorded conversations: their errors, their style, and their distance from other users.

Everything is computed from texts and task facts. No model is called and nobody is asked.
"""
