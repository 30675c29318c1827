"""One replica: dataflows that hydrate and step, what they keep in arrangements, and what they write."""
