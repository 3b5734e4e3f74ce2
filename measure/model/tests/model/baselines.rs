//! What everything is compared with.

use ciphertoll_model::{
    Cell, Ctx, Engine, Grid, Limitations, Path, Plan, ServerKey, Spec, SpecError, TlsVersion, Unlike,
    Workload,
};

const TLS12: Path = Path::tls(TlsVersion::Tls12, ServerKey::P256);
const TLS13: Path = Path::tls(TlsVersion::Tls13, ServerKey::P256);

fn plan(baseline: Option<&str>, grid: Grid) -> Result<Plan, SpecError> {
    let baseline = baseline.map(str::parse).transpose()?;
    let query = grid.workload.contains(&Workload::Query).then(|| "SELECT 1".to_owned());
    Plan::new(&Spec { baseline, query, grids: vec![grid], ..Spec::quick(&[]) }, 1)
}

fn grid(path: &[Path], ctx: &[Ctx]) -> Grid {
    Grid { path: path.to_vec(), ctx: ctx.to_vec(), ..Grid::default() }
}

/// `baseline < treatment, treatment`, as paths and contexts.
fn strata(plan: &Plan) -> Vec<String> {
    let name = |index: &usize| {
        let treatment = &plan.cells[*index].treatment;
        format!("{} {}", treatment.path, treatment.ctx.map_or("-", Ctx::label))
    };
    let line = |stratum: &ciphertoll_model::Stratum| {
        let treatments: Vec<_> = stratum.treatments.iter().map(name).collect();
        format!("{} < {}", name(&stratum.baseline), treatments.join(", "))
    };
    plan.strata.iter().map(line).collect()
}

#[test]
fn plain_unless_asked_otherwise() {
    let plan = plan(None, grid(&[TLS13, Path::Plain], &[Ctx::PerConnect, Ctx::Shared])).unwrap();
    assert_eq!(plan.baseline.to_string(), "path=plain");
    assert_eq!(strata(&plan), ["plain - < tls1.3-p256 per-connect, tls1.3-p256 shared"]);
}

/// A server may refuse plaintext.
#[test]
fn the_first_path_where_plain_is_not_measured() {
    let plan = plan(None, grid(&[TLS13, TLS12], &[Ctx::PerConnect, Ctx::Shared])).unwrap();
    assert_eq!(plan.baseline.to_string(), "path=tls1.3-p256");
    assert_eq!(
        strata(&plan),
        ["tls1.3-p256 per-connect < tls1.2-p256 per-connect", "tls1.3-p256 shared < tls1.2-p256 shared"]
    );
}

/// A path that builds no context is compared with the first that does, not with nothing.
#[test]
fn a_path_without_tls_against_one_with() {
    for baseline in [None, Some("path=tls1.3-p256")] {
        let plan = plan(baseline, grid(&[TLS13, Path::Unix], &[Ctx::PerConnect, Ctx::Shared])).unwrap();
        assert_eq!(strata(&plan), ["tls1.3-p256 per-connect < unix -", "tls1.3-p256 shared < "]);
    }
}

#[test]
fn a_way_to_build_the_context() {
    let plan =
        plan(Some("ctx=shared"), grid(&[Path::Plain, TLS13], &[Ctx::PerConnect, Ctx::Shared])).unwrap();
    assert_eq!(strata(&plan), ["plain - < ", "tls1.3-p256 shared < tls1.3-p256 per-connect"]);
}

#[test]
fn a_server() {
    let servers = ["mariadb", "a:mariadb=/opt/a"].map(|text| text.parse().unwrap());
    let workload: Vec<_> =
        Workload::ALL.into_iter().filter(|workload| workload.impossible(Engine::MariaDb).is_none()).collect();
    let grid =
        Grid { server: servers.to_vec(), workload: workload.clone(), ..grid(&[TLS13], &[Ctx::Shared]) };
    let plan = plan(Some("server=a:mariadb=/opt/a"), grid).unwrap();
    assert_eq!(plan.baseline.to_string(), "server=a:mariadb=/opt/a");
    assert_eq!(plan.strata.len(), workload.len());
    for stratum in &plan.strata {
        assert_eq!(plan.cells[stratum.baseline].treatment.server, servers[1]);
        assert_eq!(stratum.treatments.len(), 1);
        assert_eq!(plan.cells[stratum.treatments[0]].workload, plan.cells[stratum.baseline].workload);
    }
}

#[test]
fn that_is_not_measured() {
    let asked = grid(&[Path::Plain, TLS13], &[Ctx::PerConnect]);
    for baseline in ["path=unix", "path=tls1.2-p256", "ctx=shared", "server=b:mariadb"] {
        let expected = SpecError::BaselineNotMeasured(baseline.parse().unwrap());
        assert_eq!(plan(Some(baseline), asked.clone()), Err(expected));
    }
    let only_plain = grid(&[Path::Plain], &[Ctx::PerConnect]);
    assert!(matches!(plan(Some("ctx=per-connect"), only_plain), Err(SpecError::BaselineNotMeasured(_))));
}

#[test]
fn that_is_none() {
    let table = [
        (
            "plain",
            "baseline \"plain\" is not FACTOR=LEVEL, with FACTOR one of server, path, auth, ctx, driver, at-rest",
        ),
        (
            "link=local",
            "baseline \"link=local\" is not FACTOR=LEVEL, with FACTOR one of server, path, auth, ctx, driver, at-rest",
        ),
        ("auth=nativ", "baseline: unknown auth \"nativ\"; did you mean \"native\"?"),
        ("path=plian", "baseline: unknown path \"plian\"; did you mean \"plain\"?"),
        ("ctx=", "baseline: unknown ctx \"\"; it is one of: per-connect, shared, per-connect-systemca"),
    ];
    for (baseline, expected) in table {
        let error = plan(Some(baseline), grid(&[Path::Plain], &[Ctx::PerConnect])).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn servers_with_one_name_cannot_be_planned() {
    let servers = ["mariadb", "mariadb=/opt/x"].map(|text| text.parse().unwrap());
    let grid = Grid { server: servers.to_vec(), ..Grid::default() };
    let error = plan(None, grid).unwrap_err();
    assert!(matches!(&error, SpecError::SameName { name, .. } if name == "mariadb"));
    assert!(error.to_string().ends_with("give them labels, such as a:mariadb=/opt/x"), "{error}");
}

/// A driver that does something else by a workload's name is compared with none by it, whichever is the baseline; its own
/// paths are compared all the same.
#[test]
fn what_only_goes_by_the_same_name_is_not_compared() {
    let unlike = |driver: &str, workload| Unlike {
        driver: driver.parse().unwrap(),
        workload,
        reason: "it is something else".to_owned(),
    };
    let grid = Grid {
        path: vec![Path::Plain, TLS13],
        driver: ["native", "mine"].map(|name| name.parse().unwrap()).to_vec(),
        workload: vec![Workload::Connect, Workload::CONNECT_QUERY],
        ..Grid::default()
    };
    let known = [unlike("mine", Workload::Connect), unlike("mine", Workload::PointSelect)];
    for baseline in [None, Some("driver=native"), Some("driver=mine")] {
        let parsed = baseline.map(|text| text.parse().unwrap());
        let spec = Spec { baseline: parsed, grids: vec![grid.clone()], ..Spec::quick(&[]) };
        let plan =
            Plan::knowing(&spec, 1, &Limitations { unlike: &known, ..Limitations::default() }).unwrap();
        let contrasts = plan.strata.iter().flat_map(|stratum| {
            stratum.treatments.iter().map(|&cell| (&plan.cells[cell], &plan.cells[stratum.baseline]))
        });
        let across = contrasts.clone().filter(|(cell, base)| cell.treatment.driver != base.treatment.driver);
        assert!(across.clone().all(|(cell, _)| cell.workload == Workload::CONNECT_QUERY), "{baseline:?}");
        assert!(across.count() >= 2, "{baseline:?}");
        let of_connect = contrasts.filter(|(cell, _)| cell.workload == Workload::Connect).count();
        // Among paths each driver has its own.
        assert_eq!(of_connect, if baseline.is_none() { 2 } else { 0 }, "{baseline:?}");
        assert_eq!(plan.unlike, known[..1]);
    }
}

/// What a driver cannot do is skipped in the plan; asked about is the cell as it would be measured.
#[test]
fn what_a_driver_cannot_do_is_not_planned() {
    let grid = Grid {
        path: vec![Path::Plain, TLS13],
        ctx: vec![Ctx::Shared],
        driver: vec!["mine".parse().unwrap()],
        ..Grid::default()
    };
    let spec = Spec { grids: vec![grid], ..Spec::quick(&[]) };
    let no_shared = |cell: &Cell| cell.treatment.ctx.map(|ctx| format!("mine has no {ctx} context"));
    let planning = |obstacle| Plan::knowing(&spec, 1, &Limitations { obstacle, ..Limitations::default() });
    let plan = planning(Some(&no_shared)).unwrap();
    let planned: Vec<Path> = plan.cells.iter().map(|cell| cell.treatment.path).collect();
    assert_eq!(planned, [Path::Plain], "plaintext builds no context");
    assert_eq!(plan.skipped[0].reason, "mine has no shared context");
    let nothing = planning(Some(&|_| Some("it does nothing".to_owned())));
    assert!(matches!(nothing, Err(SpecError::NothingPossible { reason, .. }) if reason == "it does nothing"));
}
