-- What COMMENT ON has said, and what there is to say of the system's own relations.
--
-- id: what it is on: an object, a schema, a database, a cluster, a replica or a role
-- object_type: what that is: `table`, `source`, `view`, `materialized-view`, `index`, `schema`, `database`, `cluster`, `cluster-replica` or `role`
-- object_sub_id: for a comment on a column its position, counting from 1, else NULL
-- comment: the text
CREATE SOURCE mz_internal.mz_comments (
    id text NOT NULL,
    object_type text NOT NULL,
    object_sub_id integer,
    comment text NOT NULL
);
