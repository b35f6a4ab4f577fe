"""Conversations with people (UserRL appendix F): in the terminal, at the page, and in studies."""
