"""The functions of ``import userrl``, one per file: plain arguments in, a typed result out."""
