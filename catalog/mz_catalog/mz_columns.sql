-- The columns of every relation.
--
-- id: the relation, a key of `mz_relations`
-- name: the column's name
-- position: the column's place in the relation, counted from 1
-- nullable: whether it may be NULL
-- type: the column's type, without its modifiers
-- default: the expression of its default; NULL where it has none
-- type_oid: the number by which PostgreSQL's tools know the type
-- type_mod: the type's modifier as PostgreSQL packs it; -1 where it has none
CREATE SOURCE mz_catalog.mz_columns (
    id text NOT NULL,
    name text NOT NULL,
    position uint8 NOT NULL,
    nullable boolean NOT NULL,
    type text NOT NULL,
    "default" text,
    type_oid oid NOT NULL,
    type_mod integer NOT NULL
);
