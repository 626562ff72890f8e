-- PostgreSQL's catalog as far as clients read it. The types are those that columns show to clients; they
-- contain INT or TEXT so that SQLite compares as PostgreSQL does.
ATTACH ':memory:' AS pg_catalog;
ATTACH ':memory:' AS information_schema;
CREATE TABLE pg_catalog.pg_namespace (oid OID_INT, nspname NAME_TEXT, nspowner OID_INT, nspacl "TEXT[]");
CREATE TABLE pg_catalog.pg_class (oid OID_INT, relname NAME_TEXT, relnamespace OID_INT, reltype OID_INT,
  reloftype OID_INT, relowner OID_INT, relam OID_INT, relfilenode OID_INT, reltablespace OID_INT, relpages
  INT4, reltuples REAL, relallvisible INT4, reltoastrelid OID_INT, relhasindex BOOL, relisshared BOOL,
  relpersistence CHAR_TEXT, relkind CHAR_TEXT, relnatts INT2, relchecks INT2, relhasrules BOOL,
  relhastriggers BOOL, relhassubclass BOOL, relrowsecurity BOOL, relforcerowsecurity BOOL, relispopulated
  BOOL, relreplident CHAR_TEXT, relispartition BOOL, relrewrite OID_INT, relacl "TEXT[]", reloptions
  "TEXT[]", relpartbound TEXT);
CREATE TABLE pg_catalog.pg_attribute (attrelid OID_INT, attname NAME_TEXT, atttypid OID_INT, attstattarget
  INT4, attlen INT2, attnum INT2, attndims INT4, attcacheoff INT4, atttypmod INT4, attbyval BOOL, attstorage
  CHAR_TEXT, attalign CHAR_TEXT, attcompression CHAR_TEXT, attnotnull BOOL, atthasdef BOOL, atthasmissing
  BOOL, attidentity CHAR_TEXT, attgenerated CHAR_TEXT, attisdropped BOOL, attislocal BOOL, attinhcount INT4,
  attcollation OID_INT, attacl "TEXT[]", attoptions "TEXT[]", attfdwoptions "TEXT[]");
CREATE TABLE pg_catalog.pg_attrdef (oid OID_INT, adrelid OID_INT, adnum INT2, adbin TEXT);
CREATE TABLE pg_catalog.pg_type (oid OID_INT, typname NAME_TEXT, typnamespace OID_INT, typowner OID_INT,
  typlen INT2, typbyval BOOL, typtype CHAR_TEXT, typcategory CHAR_TEXT, typispreferred BOOL, typisdefined
  BOOL, typdelim CHAR_TEXT, typrelid OID_INT, typsubscript TEXT, typelem OID_INT, typarray OID_INT, typinput
  TEXT, typoutput TEXT, typreceive TEXT, typsend TEXT, typnotnull BOOL, typbasetype OID_INT, typtypmod INT4,
  typndims INT4, typcollation OID_INT, typdefault TEXT);
CREATE TABLE pg_catalog.pg_database (oid OID_INT, datname NAME_TEXT, datdba OID_INT, encoding INT4,
  datlocprovider CHAR_TEXT, datistemplate BOOL, datallowconn BOOL, datconnlimit INT4, dattablespace OID_INT,
  datcollate TEXT, datctype TEXT, daticulocale TEXT, datcollversion TEXT, datacl "TEXT[]");
CREATE TABLE pg_catalog.pg_roles (oid OID_INT, rolname NAME_TEXT, rolsuper BOOL, rolinherit BOOL,
  rolcreaterole BOOL, rolcreatedb BOOL, rolcanlogin BOOL, rolreplication BOOL, rolconnlimit INT4,
  rolpassword TEXT, rolvaliduntil TEXT, rolbypassrls BOOL, rolconfig "TEXT[]");
CREATE TABLE pg_catalog.pg_user (usename NAME_TEXT, usesysid OID_INT, usecreatedb BOOL, usesuper BOOL,
  userepl BOOL, usebypassrls BOOL, passwd TEXT, valuntil TEXT, useconfig "TEXT[]");
CREATE TABLE pg_catalog.pg_am (oid OID_INT, amname NAME_TEXT, amhandler TEXT, amtype CHAR_TEXT);
CREATE TABLE pg_catalog.pg_index (indexrelid OID_INT, indrelid OID_INT, indnatts INT2, indnkeyatts INT2,
  indisunique BOOL, indnullsnotdistinct BOOL, indisprimary BOOL, indisexclusion BOOL, indimmediate BOOL,
  indisclustered BOOL, indisvalid BOOL, indcheckxmin BOOL, indisready BOOL, indislive BOOL, indisreplident
  BOOL, indkey "INT2[]", indcollation "OID_INT[]", indclass "OID_INT[]", indoption "INT2[]", indexprs TEXT,
  indpred TEXT);
CREATE TABLE pg_catalog.pg_constraint (oid OID_INT, conname NAME_TEXT, connamespace OID_INT, contype
  CHAR_TEXT, condeferrable BOOL, condeferred BOOL, convalidated BOOL, conrelid OID_INT, contypid OID_INT,
  conindid OID_INT, conparentid OID_INT, confrelid OID_INT, confupdtype CHAR_TEXT, confdeltype CHAR_TEXT,
  confmatchtype CHAR_TEXT, conislocal BOOL, coninhcount INT4, connoinherit BOOL, conkey "INT2[]", confkey
  "INT2[]", conbin TEXT);
CREATE TABLE pg_catalog.pg_settings (name TEXT, setting TEXT, unit TEXT, category TEXT, short_desc TEXT,
  context TEXT, vartype TEXT, source TEXT);
CREATE TABLE pg_catalog.pg_collation (oid OID_INT, collname NAME_TEXT, collnamespace OID_INT, collowner
  OID_INT, collprovider CHAR_TEXT, collisdeterministic BOOL, collencoding INT4, collcollate TEXT, collctype
  TEXT);
CREATE TABLE pg_catalog.pg_language (oid OID_INT, lanname NAME_TEXT, lanowner OID_INT, lanispl BOOL,
  lanpltrusted BOOL);
CREATE TABLE pg_catalog.pg_tablespace (oid OID_INT, spcname NAME_TEXT, spcowner OID_INT, spcacl "TEXT[]",
  spcoptions "TEXT[]");
-- Tables that are always empty.
CREATE TABLE pg_catalog.pg_auth_members (roleid OID_INT, member OID_INT, grantor OID_INT, admin_option
  BOOL);
CREATE TABLE pg_catalog.pg_cast (oid OID_INT, castsource OID_INT, casttarget OID_INT, castfunc OID_INT);
CREATE TABLE pg_catalog.pg_depend (classid OID_INT, objid OID_INT, objsubid INT4, refclassid OID_INT,
  refobjid OID_INT, refobjsubid INT4, deptype CHAR_TEXT);
CREATE TABLE pg_catalog.pg_description (objoid OID_INT, classoid OID_INT, objsubid INT4, description TEXT);
CREATE TABLE pg_catalog.pg_shdescription (objoid OID_INT, classoid OID_INT, description TEXT);
CREATE TABLE pg_catalog.pg_enum (oid OID_INT, enumtypid OID_INT, enumsortorder REAL, enumlabel NAME_TEXT);
CREATE TABLE pg_catalog.pg_event_trigger (oid OID_INT, evtname NAME_TEXT, evtevent NAME_TEXT, evtowner
  OID_INT);
CREATE TABLE pg_catalog.pg_extension (oid OID_INT, extname NAME_TEXT, extowner OID_INT, extnamespace
  OID_INT, extrelocatable BOOL, extversion TEXT);
CREATE TABLE pg_catalog.pg_foreign_data_wrapper (oid OID_INT, fdwname NAME_TEXT, fdwowner OID_INT);
CREATE TABLE pg_catalog.pg_foreign_server (oid OID_INT, srvname NAME_TEXT, srvowner OID_INT, srvfdw
  OID_INT);
CREATE TABLE pg_catalog.pg_foreign_table (ftrelid OID_INT, ftserver OID_INT, ftoptions "TEXT[]");
CREATE TABLE pg_catalog.pg_inherits (inhrelid OID_INT, inhparent OID_INT, inhseqno INT4, inhdetachpending
  BOOL);
CREATE TABLE pg_catalog.pg_locks (locktype TEXT, database OID_INT, relation OID_INT, pid INT4, mode TEXT,
  granted BOOL);
CREATE TABLE pg_catalog.pg_operator (oid OID_INT, oprname NAME_TEXT, oprnamespace OID_INT, oprleft OID_INT,
  oprright OID_INT, oprresult OID_INT, oprcode TEXT);
CREATE TABLE pg_catalog.pg_opclass (oid OID_INT, opcmethod OID_INT, opcname NAME_TEXT, opcintype OID_INT,
  opcdefault BOOL);
CREATE TABLE pg_catalog.pg_partitioned_table (partrelid OID_INT, partstrat CHAR_TEXT, partnatts INT2,
  partdefid OID_INT, partattrs "INT2[]", partexprs TEXT);
CREATE TABLE pg_catalog.pg_policy (oid OID_INT, polname NAME_TEXT, polrelid OID_INT, polcmd CHAR_TEXT,
  polpermissive BOOL, polroles "OID_INT[]", polqual TEXT, polwithcheck TEXT);
CREATE TABLE pg_catalog.pg_proc (oid OID_INT, proname NAME_TEXT, pronamespace OID_INT, proowner OID_INT,
  prolang OID_INT, prokind CHAR_TEXT, prorettype OID_INT, proargtypes "OID_INT[]", prosrc TEXT, proacl
  "TEXT[]");
CREATE TABLE pg_catalog.pg_publication (oid OID_INT, pubname NAME_TEXT, pubowner OID_INT, puballtables
  BOOL);
CREATE TABLE pg_catalog.pg_publication_namespace (oid OID_INT, pnpubid OID_INT, pnnspid OID_INT);
CREATE TABLE pg_catalog.pg_publication_rel (oid OID_INT, prpubid OID_INT, prrelid OID_INT, prqual TEXT,
  prattrs "INT2[]");
CREATE TABLE pg_catalog.pg_range (rngtypid OID_INT, rngsubtype OID_INT, rngmultitypid OID_INT, rngcollation
  OID_INT);
CREATE TABLE pg_catalog.pg_rewrite (oid OID_INT, rulename NAME_TEXT, ev_class OID_INT, ev_type CHAR_TEXT,
  ev_enabled CHAR_TEXT, is_instead BOOL);
CREATE TABLE pg_catalog.pg_sequence (seqrelid OID_INT, seqtypid OID_INT, seqstart INT8, seqincrement INT8,
  seqmax INT8, seqmin INT8, seqcache INT8, seqcycle BOOL);
CREATE TABLE pg_catalog.pg_sequences (schemaname NAME_TEXT, sequencename NAME_TEXT, sequenceowner
  NAME_TEXT);
CREATE TABLE pg_catalog.pg_stat_activity (datid OID_INT, datname NAME_TEXT, pid INT4, usename NAME_TEXT,
  application_name TEXT, state TEXT, query TEXT, backend_type TEXT);
CREATE TABLE pg_catalog.pg_statistic_ext (oid OID_INT, stxrelid OID_INT, stxname NAME_TEXT, stxnamespace
  OID_INT, stxowner OID_INT, stxstattarget INT4, stxkeys "INT2[]", stxkind "TEXT[]");
CREATE TABLE pg_catalog.pg_subscription (oid OID_INT, subname NAME_TEXT, subdbid OID_INT, subowner OID_INT);
CREATE TABLE pg_catalog.pg_trigger (oid OID_INT, tgrelid OID_INT, tgparentid OID_INT, tgname NAME_TEXT,
  tgfoid OID_INT, tgtype INT2, tgenabled CHAR_TEXT, tgisinternal BOOL, tgconstrrelid OID_INT, tgconstrindid
  OID_INT, tgconstraint OID_INT, tgdeferrable BOOL, tginitdeferred BOOL);
-- Views over these.
CREATE VIEW pg_catalog.pg_tables AS SELECT n.nspname AS schemaname, c.relname AS tablename, u.rolname AS
  tableowner, NULL AS tablespace, c.relhasindex AS hasindexes, c.relhasrules AS hasrules, c.relhastriggers
  AS hastriggers, c.relrowsecurity AS rowsecurity FROM pg_class c JOIN pg_namespace n ON n.oid =
  c.relnamespace JOIN pg_roles u ON u.oid = c.relowner WHERE c.relkind = 'r';
CREATE VIEW pg_catalog.pg_views AS SELECT n.nspname AS schemaname, c.relname AS viewname, u.rolname AS
  viewowner, pg_get_viewdef(c.oid) AS definition FROM pg_class c JOIN pg_namespace n ON n.oid =
  c.relnamespace JOIN pg_roles u ON u.oid = c.relowner WHERE c.relkind = 'v';
CREATE VIEW pg_catalog.pg_matviews AS SELECT n.nspname AS schemaname, c.relname AS matviewname, u.rolname AS
  matviewowner, NULL AS tablespace, c.relhasindex AS hasindexes, c.relispopulated AS ispopulated,
  pg_get_viewdef(c.oid) AS definition FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN
  pg_roles u ON u.oid = c.relowner WHERE c.relkind = 'm';
CREATE VIEW pg_catalog.pg_indexes AS SELECT n.nspname AS schemaname, c.relname AS tablename, x.relname AS
  indexname, NULL AS tablespace, pg_get_indexdef(x.oid) AS indexdef FROM pg_index i JOIN pg_class c ON c.oid
  = i.indrelid JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace;
CREATE TABLE information_schema.schemata (catalog_name NAME_TEXT, schema_name NAME_TEXT, schema_owner
  NAME_TEXT, default_character_set_name NAME_TEXT);
CREATE TABLE information_schema.tables (table_catalog NAME_TEXT, table_schema NAME_TEXT, table_name
  NAME_TEXT, table_type TEXT, self_referencing_column_name NAME_TEXT, is_insertable_into TEXT, is_typed
  TEXT, commit_action TEXT);
CREATE TABLE information_schema.views (table_catalog NAME_TEXT, table_schema NAME_TEXT, table_name
  NAME_TEXT, view_definition TEXT, check_option TEXT, is_updatable TEXT, is_insertable_into TEXT);
CREATE TABLE information_schema.columns (table_catalog NAME_TEXT, table_schema NAME_TEXT, table_name
  NAME_TEXT, column_name NAME_TEXT, ordinal_position INT4, column_default TEXT, is_nullable TEXT, data_type
  TEXT, character_maximum_length INT4, character_octet_length INT4, numeric_precision INT4,
  numeric_precision_radix INT4, numeric_scale INT4, datetime_precision INT4, interval_type TEXT,
  character_set_name NAME_TEXT, collation_name NAME_TEXT, domain_name NAME_TEXT, udt_catalog NAME_TEXT,
  udt_schema NAME_TEXT, udt_name NAME_TEXT, is_identity TEXT, identity_generation TEXT, is_generated TEXT,
  generation_expression TEXT, is_updatable TEXT);
CREATE TABLE information_schema.table_constraints (constraint_catalog NAME_TEXT, constraint_schema
  NAME_TEXT, constraint_name NAME_TEXT, table_catalog NAME_TEXT, table_schema NAME_TEXT, table_name
  NAME_TEXT, constraint_type TEXT, is_deferrable TEXT, initially_deferred TEXT);
CREATE TABLE information_schema.key_column_usage (constraint_catalog NAME_TEXT, constraint_schema NAME_TEXT,
  constraint_name NAME_TEXT, table_catalog NAME_TEXT, table_schema NAME_TEXT, table_name NAME_TEXT,
  column_name NAME_TEXT, ordinal_position INT4, position_in_unique_constraint INT4);
CREATE TABLE information_schema.referential_constraints (constraint_catalog NAME_TEXT, constraint_schema
  NAME_TEXT, constraint_name NAME_TEXT, unique_constraint_name NAME_TEXT, update_rule TEXT, delete_rule
  TEXT);
CREATE TABLE information_schema.constraint_column_usage (table_catalog NAME_TEXT, table_schema NAME_TEXT,
  table_name NAME_TEXT, column_name NAME_TEXT, constraint_name NAME_TEXT);
CREATE TABLE information_schema.routines (specific_schema NAME_TEXT, specific_name NAME_TEXT, routine_schema
  NAME_TEXT, routine_name NAME_TEXT, routine_type TEXT, data_type TEXT);
CREATE TABLE information_schema.sequences (sequence_catalog NAME_TEXT, sequence_schema NAME_TEXT,
  sequence_name NAME_TEXT, data_type TEXT);
