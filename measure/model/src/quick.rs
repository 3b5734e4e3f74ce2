//! What `ciphertoll run` measures without a preset or factors.

use std::time::Duration;

use crate::factor::{
    Auth, Bytes, Clients, Path, Proxy, ProxyProgram, QueryLanguage, Scale, ServerKey, ServerLevel,
    TlsVersion, Workload,
};
use crate::plan::{Plan, SAFE_CLIENTS};
use crate::spec::{Grid, Size, Spec};

/// A quick run that would take longer is reduced.
const QUICK_LIMIT: Duration = Duration::from_secs(165);

impl Spec {
    /// What `ciphertoll run` without a name measures: connects, and reads of one row or document.
    pub fn quick(servers: &[ServerLevel]) -> Self {
        let path = vec![
            Path::Plain,
            Path::tls(TlsVersion::Tls13, ServerKey::P256),
            Path::tls(TlsVersion::Tls12, ServerKey::P256),
        ];
        // FerretDB scans all documents to find one. Without SQL servers, connects get the same scale, which does not
        // matter to them.
        let has_rows = |server: &ServerLevel| server.engine.query_language() == QueryLanguage::Sql;
        let scale =
            if servers.is_empty() || servers.iter().any(has_rows) { Scale::DEFAULT } else { Scale::FEW };
        let grid = |workload: Workload, clients| Grid {
            server: servers
                .iter()
                .filter(|server| workload.impossible(server.engine).is_none())
                .cloned()
                .collect(),
            path: path.clone(),
            workload: vec![workload],
            clients: Clients::new(clients).into_iter().collect(),
            scale: vec![scale.into()],
            ..Grid::default()
        };
        let reads = [
            grid(Workload::PointSelect, 8),
            Grid { scale: vec![Scale::FEW.into()], ..grid(Workload::FindOne, 8) },
        ];
        Self {
            name: "quick".to_owned(),
            size: Size::Quick,
            grids: vec![
                grid(Workload::Connect, 1),
                // The cost of authentication, in addition to that of TLS.
                Grid { path: vec![Path::Plain], auth: Some(vec![Auth::Trust]), ..grid(Workload::Connect, 1) },
            ]
            .into_iter()
            .chain(reads.into_iter().filter(|grid| !grid.server.is_empty()))
            .collect(),
            ..Self::default()
        }
    }

    /// Adds the sidecar. If the run takes too long, drops TLS 1.2, then the second server.
    pub fn quick_with_sidecar(servers: &[ServerLevel]) -> Self {
        let proxy = Proxy::of(ProxyProgram::SIDECAR);
        let sidecar = Path::Proxy(proxy);
        let is_spoken = |server: &&ServerLevel| proxy.impossible(server.engine).is_none();
        let older = Path::tls(TlsVersion::Tls12, ServerKey::P256);
        let mut spec = Self::quick(servers);
        let cured = |grid: &Grid| Grid {
            path: vec![sidecar],
            server: grid.server.iter().filter(|server| is_spoken(server)).cloned().collect(),
            ..grid.clone()
        };
        let beside = spec.grids.iter().filter(|grid| grid.auth.is_none()).map(cured);
        let beside: Vec<Grid> = beside.filter(|grid| !grid.server.is_empty()).collect();
        spec.grids.extend(beside);
        let is_long =
            |spec: &Self| Plan::new(spec, 0).is_ok_and(|plan| plan.expected_duration() > QUICK_LIMIT);
        if is_long(&spec) {
            spec.grids.iter_mut().for_each(|grid| grid.path.retain(|path| *path != older));
        }
        if is_long(&spec) && servers.len() > 1 {
            return Self::quick_with_sidecar(&servers[..1]);
        }
        spec
    }

    /// What `ciphertoll run --url` without factors measures: few connects, and results of a page; for document
    /// databases connects only.
    pub fn quick_at(servers: &[ServerLevel]) -> Self {
        let paths = |server: &ServerLevel| match &server.url {
            Some(url) if url.host().is_none() => vec![Path::Unix],
            _ => [&[Path::Plain][..], &[TlsVersion::Tls13, TlsVersion::Tls12].map(Path::tls_as_served)]
                .concat(),
        };
        let grid = |server: &ServerLevel, workload, clients| Grid {
            server: vec![server.clone()],
            path: paths(server),
            workload: vec![workload],
            clients: Clients::new(clients).into_iter().collect(),
            ..Grid::default()
        };
        Self {
            size: Size::Small,
            grids: servers
                .iter()
                .flat_map(|server| {
                    let bulk = match server.engine.query_language() {
                        QueryLanguage::Sql => Some(Workload::BulkRead { bytes: Bytes::DEFAULT }),
                        // Results without a table are only a few bytes.
                        QueryLanguage::Documents => None,
                    };
                    let stays = bulk.map(|bulk| grid(server, bulk, SAFE_CLIENTS));
                    [grid(server, Workload::Connect, 1)].into_iter().chain(stays)
                })
                .collect(),
            ..Self::quick(&[])
        }
    }
}
