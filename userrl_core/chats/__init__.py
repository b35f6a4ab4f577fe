"""Files of chats that another tool wrote, read alike for training and for import."""
