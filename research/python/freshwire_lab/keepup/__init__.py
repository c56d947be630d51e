"""Readers that keep up: do they get everything? `freshwire serve` beside plain `websockets`.

The cells sweep keys, rates, sizes and paths.

`python3 -m freshwire_lab.keepup` plays the cells and prints a table. It needs the command `freshwire` and the package
`websockets`. On a link it also needs what `freshwire link` needs.
"""
