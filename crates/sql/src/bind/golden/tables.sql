-- What the tables of the golden tests are in PostgreSQL, to compare with.
create table t (
    a int primary key, b text default 'x', c numeric(10, 2), d timestamptz default now(), e varchar(10), f char(3), g bool,
    h bigint not null default 1, i smallint, constraint t_check check (h > 0 and b <> 'y'));
create table u (id serial primary key, a int, name varchar(10));
create table w (a int, v float8, day date);
