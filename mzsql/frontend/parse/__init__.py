"""Text to statements: the parsers of each family of statements, over the pieces that statements are made of.

What comes out is the shape of the text (`mzsql.frontend.parse.statements`); no name is resolved here.
"""
