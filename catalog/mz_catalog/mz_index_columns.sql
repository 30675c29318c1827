-- The key of each index, one row for each of its expressions.
--
-- index_id: the index, a key of `mz_indexes`
-- index_position: which expression of the key it is, counted from 1
-- on_position: the column of the relation that it is, counted from 1; NULL where it is an expression
-- on_expression: the expression's text; NULL where it is a column
-- nullable: whether it may be NULL
CREATE SOURCE mz_catalog.mz_index_columns (
    index_id text NOT NULL,
    index_position uint8 NOT NULL,
    on_position uint8,
    on_expression text,
    nullable boolean NOT NULL
);
