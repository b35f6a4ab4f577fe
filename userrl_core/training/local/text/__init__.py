"""Between text and token ids: tokenizers, chat formats and the forms of a call."""
