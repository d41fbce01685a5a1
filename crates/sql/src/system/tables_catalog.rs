//! Which tables `pg_catalog` has: names, numbers, columns and their order are those of PostgreSQL 15. Those of features that are not
//! implemented are there and empty, since tools ask them.

use super::{constraints, none, objects, relations, roles, system_tables};

system_tables! {
    pub(super) static CATALOG;
    1259 pg_catalog pg_class = relations::classes {
        oid: Oid, relname: Name, relnamespace: Oid, reltype: Oid, reloftype: Oid, relowner: Oid, relam: Oid,
        relfilenode: Oid, reltablespace: Oid, relpages: Int4, reltuples: Float4, relallvisible: Int4,
        reltoastrelid: Oid,
        relhasindex: Bool, relisshared: Bool, relpersistence: Char, relkind: Char, relnatts: Int2,
        relchecks: Int2,
        relhasrules: Bool, relhastriggers: Bool, relhassubclass: Bool, relrowsecurity: Bool,
        relforcerowsecurity: Bool,
        relispopulated: Bool, relreplident: Char, relispartition: Bool, relrewrite: Oid, relfrozenxid: Xid,
        relminmxid: Xid, relacl: TextArray, reloptions: TextArray, relpartbound: NodeTree,
    }
    1249 pg_catalog pg_attribute = relations::attributes {
        attrelid: Oid, attname: Name, atttypid: Oid, attstattarget: Int4, attlen: Int2, attnum: Int2,
        attndims: Int4,
        attcacheoff: Int4, atttypmod: Int4, attbyval: Bool, attalign: Char, attstorage: Char,
        attcompression: Char,
        attnotnull: Bool, atthasdef: Bool, atthasmissing: Bool, attidentity: Char, attgenerated: Char,
        attisdropped: Bool, attislocal: Bool, attinhcount: Int4, attcollation: Oid, attacl: TextArray,
        attoptions: TextArray, attfdwoptions: TextArray, attmissingval: Text,
    }
    2604 pg_catalog pg_attrdef = relations::defaults {
        oid: Oid, adrelid: Oid, adnum: Int2, adbin: NodeTree,
    }
    2610 pg_catalog pg_index = relations::indexes {
        indexrelid: Oid, indrelid: Oid, indnatts: Int2, indnkeyatts: Int2, indisunique: Bool,
        indnullsnotdistinct: Bool,
        indisprimary: Bool, indisexclusion: Bool, indimmediate: Bool, indisclustered: Bool, indisvalid: Bool,
        indcheckxmin: Bool, indisready: Bool, indislive: Bool, indisreplident: Bool, indkey: Int2Vector,
        indcollation: OidVector, indclass: OidVector, indoption: Int2Vector, indexprs: NodeTree,
        indpred: NodeTree,
    }
    2606 pg_catalog pg_constraint = constraints::constraints {
        oid: Oid, conname: Name, connamespace: Oid, contype: Char, condeferrable: Bool, condeferred: Bool,
        convalidated: Bool, conrelid: Oid, contypid: Oid, conindid: Oid, conparentid: Oid, confrelid: Oid,
        confupdtype: Char, confdeltype: Char, confmatchtype: Char, conislocal: Bool, coninhcount: Int4,
        connoinherit: Bool, conkey: Int2Array, confkey: Int2Array, conpfeqop: OidArray, conppeqop: OidArray,
        conffeqop: OidArray, confdelsetcols: Int2Array, conexclop: OidArray, conbin: NodeTree,
    }
    2615 pg_catalog pg_namespace = objects::namespaces {
        oid: Oid, nspname: Name, nspowner: Oid, nspacl: TextArray,
    }
    1247 pg_catalog pg_type = objects::types {
        oid: Oid, typname: Name, typnamespace: Oid, typowner: Oid, typlen: Int2, typbyval: Bool, typtype: Char,
        typcategory: Char, typispreferred: Bool, typisdefined: Bool, typdelim: Char, typrelid: Oid,
        typsubscript: Regproc, typelem: Oid, typarray: Oid, typinput: Regproc, typoutput: Regproc,
        typreceive: Regproc,
        typsend: Regproc, typmodin: Regproc, typmodout: Regproc, typanalyze: Regproc, typalign: Char,
        typstorage: Char,
        typnotnull: Bool, typbasetype: Oid, typtypmod: Int4, typndims: Int4, typcollation: Oid,
        typdefaultbin: NodeTree,
        typdefault: Text, typacl: TextArray,
    }
    1255 pg_catalog pg_proc = objects::functions {
        oid: Oid, proname: Name, pronamespace: Oid, proowner: Oid, prolang: Oid, procost: Float4,
        prorows: Float4,
        provariadic: Oid, prosupport: Regproc, prokind: Char, prosecdef: Bool, proleakproof: Bool,
        proisstrict: Bool,
        proretset: Bool, provolatile: Char, proparallel: Char, pronargs: Int2, pronargdefaults: Int2,
        prorettype: Oid,
        proargtypes: OidVector, proallargtypes: OidArray, proargmodes: CharArray, proargnames: TextArray,
        proargdefaults: NodeTree, protrftypes: OidArray, prosrc: Text, probin: Text, prosqlbody: NodeTree,
        proconfig: TextArray, proacl: TextArray,
    }
    2601 pg_catalog pg_am = objects::access_methods {
        oid: Oid, amname: Name, amhandler: Regproc, amtype: Char,
    }
    3456 pg_catalog pg_collation = objects::collations {
        oid: Oid, collname: Name, collnamespace: Oid, collowner: Oid, collprovider: Char,
        collisdeterministic: Bool,
        collencoding: Int4, collcollate: Text, collctype: Text, colliculocale: Text, collversion: Text,
    }
    1262 pg_catalog pg_database = objects::databases {
        oid: Oid, datname: Name, datdba: Oid, encoding: Int4, datlocprovider: Char, datistemplate: Bool,
        datallowconn: Bool, datconnlimit: Int4, datfrozenxid: Xid, datminmxid: Xid, dattablespace: Oid,
        datcollate: Text,
        datctype: Text, daticulocale: Text, datcollversion: Text, datacl: TextArray,
    }
    1260 pg_catalog pg_authid = roles::authids {
        oid: Oid, rolname: Name, rolsuper: Bool, rolinherit: Bool, rolcreaterole: Bool, rolcreatedb: Bool,
        rolcanlogin: Bool, rolreplication: Bool, rolbypassrls: Bool, rolconnlimit: Int4, rolpassword: Text,
        rolvaliduntil: TimestampTz,
    }
    2224 pg_catalog pg_sequence = relations::sequences {
        seqrelid: Oid, seqtypid: Oid, seqstart: Int8, seqincrement: Int8, seqmax: Int8, seqmin: Int8,
        seqcache: Int8,
        seqcycle: Bool,
    }
    1213 pg_catalog pg_tablespace = objects::tablespaces {
        oid: Oid, spcname: Name, spcowner: Oid, spcacl: TextArray, spcoptions: TextArray,
    }
    2608 pg_catalog pg_depend = constraints::dependencies {
        classid: Oid, objid: Oid, objsubid: Int4, refclassid: Oid, refobjid: Oid, refobjsubid: Int4,
        deptype: Char,
    }
    2612 pg_catalog pg_language = objects::languages {
        oid: Oid, lanname: Name, lanowner: Oid, lanispl: Bool, lanpltrusted: Bool, lanplcallfoid: Oid,
        laninline: Oid,
        lanvalidator: Oid, lanacl: TextArray,
    }
    2609 pg_catalog pg_description = none {
        objoid: Oid, classoid: Oid, objsubid: Int4, description: Text,
    }
    2396 pg_catalog pg_shdescription = none {
        objoid: Oid, classoid: Oid, description: Text,
    }
    2611 pg_catalog pg_inherits = none {
        inhrelid: Oid, inhparent: Oid, inhseqno: Int4, inhdetachpending: Bool,
    }
    2618 pg_catalog pg_rewrite = none {
        oid: Oid, rulename: Name, ev_class: Oid, ev_type: Char, ev_enabled: Char, is_instead: Bool,
        ev_qual: NodeTree,
        ev_action: NodeTree,
    }
    2620 pg_catalog pg_trigger = none {
        oid: Oid, tgrelid: Oid, tgparentid: Oid, tgname: Name, tgfoid: Oid, tgtype: Int2, tgenabled: Char,
        tgisinternal: Bool, tgconstrrelid: Oid, tgconstrindid: Oid, tgconstraint: Oid, tgdeferrable: Bool,
        tginitdeferred: Bool, tgnargs: Int2, tgattr: Int2Vector, tgargs: Bytea, tgqual: NodeTree,
        tgoldtable: Name,
        tgnewtable: Name,
    }
    3256 pg_catalog pg_policy = none {
        oid: Oid, polname: Name, polrelid: Oid, polcmd: Char, polpermissive: Bool, polroles: OidArray,
        polqual: NodeTree,
        polwithcheck: NodeTree,
    }
    3381 pg_catalog pg_statistic_ext = none {
        oid: Oid, stxrelid: Oid, stxname: Name, stxnamespace: Oid, stxowner: Oid, stxstattarget: Int4,
        stxkeys: Int2Vector, stxkind: CharArray, stxexprs: NodeTree,
    }
    6104 pg_catalog pg_publication = none {
        oid: Oid, pubname: Name, pubowner: Oid, puballtables: Bool, pubinsert: Bool, pubupdate: Bool,
        pubdelete: Bool,
        pubtruncate: Bool, pubviaroot: Bool,
    }
    6106 pg_catalog pg_publication_rel = none {
        oid: Oid, prpubid: Oid, prrelid: Oid, prqual: NodeTree, prattrs: Int2Vector,
    }
    6237 pg_catalog pg_publication_namespace = none {
        oid: Oid, pnpubid: Oid, pnnspid: Oid,
    }
    6100 pg_catalog pg_subscription = none {
        oid: Oid, subdbid: Oid, subskiplsn: Text, subname: Name, subowner: Oid, subenabled: Bool,
        subbinary: Bool,
        substream: Bool, subtwophasestate: Char, subdisableonerr: Bool, subconninfo: Text, subslotname: Name,
        subsynccommit: Text, subpublications: TextArray,
    }
    3118 pg_catalog pg_foreign_table = none {
        ftrelid: Oid, ftserver: Oid, ftoptions: TextArray,
    }
    1417 pg_catalog pg_foreign_server = none {
        oid: Oid, srvname: Name, srvowner: Oid, srvfdw: Oid, srvtype: Text, srvversion: Text, srvacl: TextArray,
        srvoptions: TextArray,
    }
    2328 pg_catalog pg_foreign_data_wrapper = none {
        oid: Oid, fdwname: Name, fdwowner: Oid, fdwhandler: Oid, fdwvalidator: Oid, fdwacl: TextArray,
        fdwoptions: TextArray,
    }
    1418 pg_catalog pg_user_mapping = none {
        oid: Oid, umuser: Oid, umserver: Oid, umoptions: TextArray,
    }
    3350 pg_catalog pg_partitioned_table = none {
        partrelid: Oid, partstrat: Char, partnatts: Int2, partdefid: Oid, partattrs: Int2Vector,
        partclass: OidVector,
        partcollation: OidVector, partexprs: NodeTree,
    }
    3079 pg_catalog pg_extension = none {
        oid: Oid, extname: Name, extowner: Oid, extnamespace: Oid, extrelocatable: Bool, extversion: Text,
        extconfig: OidArray, extcondition: TextArray,
    }
    3501 pg_catalog pg_enum = none {
        oid: Oid, enumtypid: Oid, enumsortorder: Float4, enumlabel: Name,
    }
    3541 pg_catalog pg_range = none {
        rngtypid: Oid, rngsubtype: Oid, rngmultitypid: Oid, rngcollation: Oid, rngsubopc: Oid,
        rngcanonical: Regproc,
        rngsubdiff: Regproc,
    }
    2617 pg_catalog pg_operator = none {
        oid: Oid, oprname: Name, oprnamespace: Oid, oprowner: Oid, oprkind: Char, oprcanmerge: Bool,
        oprcanhash: Bool,
        oprleft: Oid, oprright: Oid, oprresult: Oid, oprcom: Oid, oprnegate: Oid, oprcode: Regproc,
        oprrest: Regproc,
        oprjoin: Regproc,
    }
    2616 pg_catalog pg_opclass = none {
        oid: Oid, opcmethod: Oid, opcname: Name, opcnamespace: Oid, opcowner: Oid, opcfamily: Oid,
        opcintype: Oid,
        opcdefault: Bool, opckeytype: Oid,
    }
    2753 pg_catalog pg_opfamily = none {
        oid: Oid, opfmethod: Oid, opfname: Name, opfnamespace: Oid, opfowner: Oid,
    }
    2602 pg_catalog pg_amop = none {
        oid: Oid, amopfamily: Oid, amoplefttype: Oid, amoprighttype: Oid, amopstrategy: Int2, amoppurpose: Char,
        amopopr: Oid, amopmethod: Oid, amopsortfamily: Oid,
    }
    2603 pg_catalog pg_amproc = none {
        oid: Oid, amprocfamily: Oid, amproclefttype: Oid, amprocrighttype: Oid, amprocnum: Int2,
        amproc: Regproc,
    }
    2605 pg_catalog pg_cast = none {
        oid: Oid, castsource: Oid, casttarget: Oid, castfunc: Oid, castcontext: Char, castmethod: Char,
    }
    3466 pg_catalog pg_event_trigger = none {
        oid: Oid, evtname: Name, evtevent: Name, evtowner: Oid, evtfoid: Oid, evtenabled: Char,
        evttags: TextArray,
    }
    1261 pg_catalog pg_auth_members = none {
        roleid: Oid, member: Oid, grantor: Oid, admin_option: Bool,
    }
    1214 pg_catalog pg_shdepend = none {
        dbid: Oid, classid: Oid, objid: Oid, objsubid: Int4, refclassid: Oid, refobjid: Oid, deptype: Char,
    }
    3596 pg_catalog pg_seclabel = none {
        objoid: Oid, classoid: Oid, objsubid: Int4, provider: Text, label: Text,
    }
    826 pg_catalog pg_default_acl = none {
        oid: Oid, defaclrole: Oid, defaclnamespace: Oid, defaclobjtype: Char, defaclacl: TextArray,
    }
    2964 pg_catalog pg_db_role_setting = none {
        setdatabase: Oid, setrole: Oid, setconfig: TextArray,
    }
    2995 pg_catalog pg_largeobject_metadata = none {
        oid: Oid, lomowner: Oid, lomacl: TextArray,
    }
    3394 pg_catalog pg_init_privs = none {
        objoid: Oid, classoid: Oid, objsubid: Int4, privtype: Char, initprivs: TextArray,
    }
    2607 pg_catalog pg_conversion = none {
        oid: Oid, conname: Name, connamespace: Oid, conowner: Oid, conforencoding: Int4, contoencoding: Int4,
        conproc: Regproc, condefault: Bool,
    }
    3576 pg_catalog pg_transform = none {
        oid: Oid, trftype: Oid, trflang: Oid, trffromsql: Regproc, trftosql: Regproc,
    }
}
