//! Which cells a driver can run; pure, so that plans can be made without any driver installed.

use ciphertoll_model::{
    Auth, Cell, ClientCertificate, Ctx, Engine, Factor, Pace, Path, Resumption, SecurityLevel, TlsLibrary,
    TlsPath, TlsStart, Workload,
};

use super::file::{AuthKind, DriverFile, Paces, PathKind, Reasons, WorkloadName};

/// What a cell requires of a driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverRequirements {
    pub engine: Engine,
    pub workload: Workload,
    pub path: Path,
    pub auth: Auth,
    pub pace: Pace,
    /// `None` if the path has no TLS.
    pub ctx: Option<Ctx>,
}

impl DriverRequirements {
    /// The requirements of `cell`.
    pub fn of(cell: &Cell) -> Self {
        Self {
            engine: cell.treatment.server.engine,
            workload: cell.workload,
            path: cell.treatment.path,
            auth: cell.treatment.auth,
            pace: cell.pace,
            ctx: cell.treatment.ctx,
        }
    }
}

/// Why the driver `name` cannot do this, in one line; `None` if it can.
pub(super) fn impossible(name: &str, file: &DriverFile, facts: &DriverRequirements) -> Option<String> {
    let what = first_unsupported(file, facts)?;
    let reasons: Vec<&Reasons> = match file {
        DriverFile::Program(program) => vec![&program.without],
        DriverFile::Tool(tool) => {
            let engine = tool.engines.get(&facts.engine).map(|engine| &engine.without);
            engine.into_iter().chain([&tool.without]).collect()
        }
    };
    let said = reasons.into_iter().find_map(|reasons| reasons.get(&what.key)).cloned();
    Some(said.unwrap_or_else(|| format!("driver {name} cannot do {} {}", what.factor, what.level)))
}

/// An unsupported level: its key in `[without]`, its factor and its text.
struct UnsupportedLevel {
    key: String,
    factor: &'static str,
    level: String,
}

fn first_unsupported(file: &DriverFile, facts: &DriverRequirements) -> Option<UnsupportedLevel> {
    let obstacle = |factor: Factor, key: &str, level: String| {
        Some(UnsupportedLevel { key: key.to_owned(), factor: factor.label(), level })
    };
    if let Some((factor, _)) = abilities(file, facts).into_iter().find(|(_, can)| !can) {
        return match factor {
            Factor::Server => obstacle(factor, facts.engine.label(), facts.engine.to_string()),
            Factor::Workload => obstacle(factor, facts.workload.name(), facts.workload.to_string()),
            Factor::Path => obstacle(factor, PathKind::of(facts.path).label(), facts.path.to_string()),
            Factor::Auth => obstacle(factor, &AuthKind::name_of(facts.auth), facts.auth.to_string()),
            _ => obstacle(factor, "open", facts.pace.to_string()),
        };
    }
    // A driver uses its library's TLS with default settings.
    if let Some(key) = facts.path.as_tls().and_then(own_tls) {
        return obstacle(Factor::Path, key, facts.path.to_string());
    }
    // Every library with a driver builds a context for each connect.
    match facts.ctx {
        Some(ctx) if ctx != Ctx::PerConnect => obstacle(Factor::Ctx, ctx.label(), ctx.to_string()),
        _ => None,
    }
}

/// The TLS modifier that only our own client supports, if the path has one.
fn own_tls(tls: TlsPath) -> Option<&'static str> {
    if tls.library != TlsLibrary::OpenSsl {
        return Some(tls.library.label());
    }
    let asked = [
        (tls.suite.is_some(), "suite"),
        (tls.group.is_some(), "group"),
        (tls.resumption != Resumption::Never, "resume"),
        (tls.start == TlsStart::Eager, "eager"),
        (tls.client_certificate == ClientCertificate::Demanded, "mtls"),
        (tls.security_level() != SecurityLevel::Default, "weak"),
    ];
    asked.into_iter().find_map(|(is_asked, key)| is_asked.then_some(key))
}

/// Whether the driver can do the level of each factor, in the order in which reasons are given.
fn abilities(file: &DriverFile, facts: &DriverRequirements) -> [(Factor, bool); 5] {
    let (path, auth) = (PathKind::of(facts.path), AuthKind::of(facts.auth));
    let workload = WorkloadName::of(facts.workload);
    let closed = facts.pace.is_closed();
    match file {
        DriverFile::Program(program) => {
            let can = &program.can;
            let workloads = can.workloads.as_ref();
            [
                (Factor::Server, can.engines.contains(&facts.engine)),
                (Factor::Workload, workloads.is_none_or(|known| known.contains(&workload))),
                (Factor::Path, can.paths.contains(&path)),
                (Factor::Auth, can.auths.as_ref().is_none_or(|known| known.contains(&auth))),
                (Factor::Pace, closed || can.paces == Paces::Any),
            ]
        }
        DriverFile::Tool(tool) => {
            let engine = tool.engines.get(&facts.engine);
            let auths = engine.and_then(|engine| engine.auths.as_ref());
            [
                (Factor::Server, engine.is_some()),
                (Factor::Workload, tool.workloads.contains_key(&workload)),
                (Factor::Path, engine.is_some_and(|engine| engine.paths.contains_key(&path))),
                (Factor::Auth, auths.is_none_or(|known| known.contains(&auth))),
                (Factor::Pace, closed),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::find;

    fn reason(driver: &str, change: impl FnOnce(&mut DriverRequirements)) -> Option<String> {
        let mut facts = DriverRequirements {
            engine: Engine::MariaDb,
            workload: Workload::PointSelect,
            path: Path::Plain,
            auth: Auth::Native,
            pace: Pace::Closed,
            ctx: None,
        };
        change(&mut facts);
        find(driver).unwrap().impossible(&facts)
    }

    fn postgres(facts: &mut DriverRequirements) {
        facts.engine = Engine::Postgres;
        facts.auth = Auth::default_of(Engine::Postgres);
    }

    fn level<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
        text.parse().unwrap()
    }

    #[test]
    fn supported_cells_are_possible() {
        for driver in ["libmariadb", "sysbench"] {
            assert_eq!(reason(driver, |_| ()), None);
        }
        for driver in ["libpq", "pgbench", "sysbench"] {
            assert_eq!(reason(driver, postgres), None);
            assert_eq!(
                reason(driver, |facts| {
                    postgres(facts);
                    facts.path = level("tls1.3-p256");
                    facts.ctx = Some(Ctx::PerConnect);
                }),
                None
            );
        }
        assert_eq!(reason("mysqlslap", |facts| facts.workload = Workload::ConnectQuery), None);
        assert_eq!(reason("libmariadb", |facts| facts.workload = level("bulk-read+bytes=300")), None);
        let mysql = |facts: &mut DriverRequirements| {
            facts.engine = Engine::MySql;
            facts.auth = Auth::CachingSha2;
        };
        for driver in ["libmariadb", "sysbench"] {
            assert_eq!(reason(driver, mysql), None);
        }
    }

    #[test]
    fn unsupported_cells_have_a_reason() {
        let expected = |driver, change: fn(&mut DriverRequirements), words: &str| {
            let said = reason(driver, change).unwrap();
            assert!(said.contains(words), "{said}");
        };
        expected("libpq", |_| (), "driver libpq cannot do server mariadb");
        expected("mysqlslap", |_| (), "which would read one row");
        expected("sysbench", |facts| facts.path = level("tls1.2-p256"), "does not verify the server");
        expected(
            "sysbench",
            |facts| facts.workload = level("bulk-read"),
            "cannot do workload bulk-read+bytes=16k",
        );
        expected("libmariadb", |facts| facts.auth = Auth::Parsec, "since version 3.4");
        expected("libmariadb", |facts| facts.pace = level("100/s"), "cannot do pace 100/s");
        expected("libmariadb", |facts| facts.ctx = Some(Ctx::Shared), "builds its TLS context per connect");
        let rustls: fn(&mut DriverRequirements) = |facts| facts.path = level("tls1.3-p256+client=rustls");
        expected("libmariadb", rustls, "cannot do path tls1.3-p256+client=rustls");
        let direct: fn(&mut DriverRequirements) = |facts| {
            postgres(facts);
            facts.path = level("tls1.3-p256+direct");
        };
        expected("pgbench", direct, "silently use negotiated TLS");
        assert_eq!(reason("libpq", direct), None);
    }

    #[test]
    fn pymongo_supports_document_workloads() {
        let documents = |facts: &mut DriverRequirements| {
            facts.engine = Engine::FerretDb;
            facts.auth = Auth::default_of(Engine::FerretDb);
            facts.workload = Workload::FindOne;
            facts.path = level("tls1.3-p256");
            facts.ctx = Some(Ctx::PerConnect);
        };
        assert_eq!(reason("pymongo", documents), None);
        for workload in ["connect", "connect-query", "first-query"] {
            let change = |facts: &mut DriverRequirements| {
                documents(facts);
                facts.workload = level(workload);
            };
            assert_eq!(reason("pymongo", change), None, "{workload}");
        }
        let expected = |change: fn(&mut DriverRequirements), words: &str| {
            let all = |facts: &mut DriverRequirements| {
                documents(facts);
                change(facts);
            };
            let said = reason("pymongo", all).unwrap();
            assert!(said.contains(words), "{said}");
        };
        expected(|facts| facts.workload = level("ycsb-a"), "it does find-one");
        expected(|facts| facts.engine = Engine::Postgres, "cannot do server postgres");
        expected(|facts| facts.path = Path::Unix, "connects by TCP");
        expected(|facts| facts.ctx = Some(Ctx::Shared), "with each client");
        expected(|facts| facts.pace = level("100/s"), "cannot do pace 100/s");
        expected(|facts| facts.auth = Auth::Md5, "cannot do auth md5");
    }
}
