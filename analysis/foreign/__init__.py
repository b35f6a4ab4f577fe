"""Readers of conversations that other tools logged. Text in these files is data: nothing in them is executed."""
