//! Parts of a grammar that are not texts, which can be left out.

use crate::options::Options;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// An administrator changes tables in between.
    Admin,
    /// Clients leave behind their last command, or close their half of the connection.
    Leaving,
    /// Messages at places where no driver sends them.
    Illegal,
    /// Logins that are not the usual one.
    Logins,
    /// PostgreSQL: the extended protocol.
    Extended,
    /// PostgreSQL: several commands up to one Sync.
    Pipelines,
    /// MySQL: prepared statements of the protocol.
    Statements,
    Cursors,
    Fetches,
    ChangeUser,
}

/// The parts in use.
pub(crate) struct Parts(Vec<Part>);

impl Parts {
    pub(crate) fn of(options: &Options) -> Self {
        use Part as P;
        let all = [
            P::Admin,
            P::Leaving,
            P::Illegal,
            P::Logins,
            P::Extended,
            P::Pipelines,
            P::Statements,
            P::Cursors,
            P::Fetches,
            P::ChangeUser,
        ];
        let is_in = |part: &Part| options.has_feature(&format!("{part:?}").to_lowercase());
        Self(all.into_iter().filter(is_in).collect())
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        self.0.contains(&part)
    }
}
