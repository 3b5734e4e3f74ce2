use crate::labelled::labelled;

/// A database engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// MariaDB Server.
    MariaDb,
    /// Oracle's MySQL Server, and builds that report themselves as MySQL.
    MySql,
    /// PostgreSQL.
    Postgres,
    /// `MongoDB`.
    MongoDb,
    /// `FerretDB`, which speaks MongoDB's protocol.
    FerretDb,
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
    /// Every engine.
    pub const ALL: [Self; 5] = [Self::MariaDb, Self::MySql, Self::Postgres, Self::MongoDb, Self::FerretDb];
    /// The SQL engines.
    pub const SQL: [Self; 3] = [Self::MariaDb, Self::MySql, Self::Postgres];

    /// As on the command line.
    pub fn label(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
            Self::Postgres => "postgres",
            Self::MongoDb => "mongodb",
            Self::FerretDb => "ferretdb",
        }
    }

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
        match self {
            Self::MariaDb | Self::MySql => true,
            Self::Postgres | Self::MongoDb | Self::FerretDb => false,
        }
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

labelled!(Engine: "engine");
