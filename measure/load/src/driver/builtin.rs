//! The built-in drivers: their files and sources, embedded.

pub(super) const DRIVERS: [(&str, &str); 6] = [
    ("libpq", include_str!("../../../../drivers/libpq.toml")),
    ("libmariadb", include_str!("../../../../drivers/libmariadb.toml")),
    ("pgbench", include_str!("../../../../drivers/pgbench.toml")),
    ("sysbench", include_str!("../../../../drivers/sysbench.toml")),
    ("mysqlslap", include_str!("../../../../drivers/mysqlslap.toml")),
    ("pymongo", include_str!("../../../../drivers/pymongo.toml")),
];

const SOURCES: [(&str, &str); 12] = [
    ("libpq.c", include_str!("../../../../drivers/libpq.c")),
    ("libmariadb.c", include_str!("../../../../drivers/libmariadb.c")),
    ("load.c", include_str!("../../../../drivers/load.c")),
    ("load.h", include_str!("../../../../drivers/load.h")),
    ("spec.c", include_str!("../../../../drivers/spec.c")),
    ("spec.h", include_str!("../../../../drivers/spec.h")),
    ("draw.c", include_str!("../../../../drivers/draw.c")),
    ("draw.h", include_str!("../../../../drivers/draw.h")),
    ("message.c", include_str!("../../../../drivers/message.c")),
    ("message.h", include_str!("../../../../drivers/message.h")),
    ("pymongo.py", include_str!("../../../../drivers/pymongo.py")),
    ("pymongo.requirements.txt", include_str!("../../../../drivers/pymongo.requirements.txt")),
];

pub(super) fn source(name: &str) -> Option<&'static str> {
    SOURCES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
