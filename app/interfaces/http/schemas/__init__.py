"""Shapes of answers and bodies, in the field's names. One module a stage."""
