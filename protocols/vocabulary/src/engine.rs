use crate::labelled::{labelled, labelled_enum};

labelled_enum! {
    /// A database engine.
    Engine: "engine" {
        /// MariaDB Server.
        MariaDb = "mariadb",
        /// Oracle's MySQL Server, and builds that report themselves as MySQL.
        MySql = "mysql",
        /// PostgreSQL.
        Postgres = "postgres",
        /// `MongoDB`.
        MongoDb = "mongodb",
        /// `FerretDB`, which speaks MongoDB's protocol.
        FerretDb = "ferretdb",
    }
}

/// What queries are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueryLanguage {
    /// SQL.
    Sql,
    /// `MongoDB`'s commands on documents.
    Documents,
}

impl Engine {
    /// The SQL engines.
    pub const SQL: [Self; 3] = [Self::MariaDb, Self::MySql, Self::Postgres];

    /// As its makers write it.
    pub fn display_name(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
            Self::Postgres => "PostgreSQL",
            Self::MongoDb => "MongoDB",
            Self::FerretDb => "FerretDB",
        }
    }

    /// Whether it speaks MySQL's protocol and dialect of SQL.
    pub fn is_mysql_family(self) -> bool {
        matches!(self, Self::MariaDb | Self::MySql)
    }

    /// Whether both speak the same protocol.
    pub fn shares_protocol(self, other: Self) -> bool {
        (self.is_mysql_family(), self.query_language()) == (other.is_mysql_family(), other.query_language())
    }

    /// What its queries are written in.
    pub fn query_language(self) -> QueryLanguage {
        match self {
            Self::MariaDb | Self::MySql | Self::Postgres => QueryLanguage::Sql,
            Self::MongoDb | Self::FerretDb => QueryLanguage::Documents,
        }
    }
}
