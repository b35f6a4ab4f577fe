"""The functions of ``import userrl``: a file for each, plain arguments in, a typed result out."""
