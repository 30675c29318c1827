"""Text to statements: parsers for each family of statements, over the pieces that statements are made of.

The result has the shape of the text (`mzsql.frontend.parse.statements`); no name is resolved here.
"""
