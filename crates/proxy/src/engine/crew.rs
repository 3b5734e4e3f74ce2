//! The threads of a proxy: how they begin, and how they end together.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use ciphertoll_net::{Channel, Error, Listener, Reactor, SpareBuffer};
use jiff::Timestamp;

use super::accept::Backoff;
use super::commons::{Commons, Shared, SharedPool};
use super::derive::Deriver;
use super::orders::Ops;
use super::post::Post;
use super::reload::Prepared;
use super::vacate::Vacated;
use super::{Ended, Kind, Orders, Proxy, SIGNALS, key_of, listeners};
use crate::dialect::Dialect;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::pool::Pool;
use crate::settings::{Settings, StartError};
use crate::slab::Slab;

/// A proxy that listens, on one thread or several.
pub struct Crew<D: Dialect> {
    first: Proxy<D>,
    others: Vec<Proxy<D>>,
}

/// What a thread begins with.
struct Place<D: Dialect> {
    reactor: Reactor,
    listeners: Vec<Listener>,
    commons: Commons<D>,
    pool: SharedPool<D>,
}

fn host(what: &str) -> impl Fn(Error) -> StartError + '_ {
    move |source| StartError::Host { what: what.to_owned(), source }
}

impl<D: Dialect> Crew<D> {
    /// Listens. Whatever is written to the other end of `signals` stops it: the first byte with time for clients to
    /// leave, the second one at once.
    pub fn start(
        settings: &Settings,
        log: Log,
        signals: UnixStream,
        notifier: &Notifier,
    ) -> Result<Self, StartError> {
        let prepared = Prepared::<D>::new(settings, log)?;
        let metrics = Arc::new(Metrics::default());
        let (began, started) = (Instant::now(), Timestamp::now());
        let mut proxies = Vec::new();
        let (places, deriver) = places(settings)?;
        for place in places {
            let (metrics, notifier) = (Arc::clone(&metrics), notifier.clone());
            let ops = Ops { metrics, notifier, deriver: deriver.clone(), started };
            proxies.push(Proxy::at(place, prepared.clone(), settings, ops, began));
        }
        let mut first = proxies.remove(0);
        let mut signals = Channel::from_unix(signals).map_err(host("signals"))?;
        let key = key_of(Kind::Fixed, SIGNALS);
        first.reactor.register_reading(&mut signals, key).map_err(host("signals"))?;
        first.signals = Some(signals);
        Ok(Self { first, others: proxies })
    }

    /// Where it listens by TCP.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.first.listeners.iter().filter_map(Listener::address).collect()
    }

    /// The way to it, for other threads.
    pub fn orders(&self) -> Orders<D> {
        self.first.orders()
    }

    /// Serves until it is stopped, on this thread and the others.
    pub fn run(self) -> Result<Ended, Error> {
        let Self { first, others } = self;
        let mut handles = Vec::new();
        for proxy in others {
            match begin(proxy) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    first.commons.break_off();
                    let _ = join(handles);
                    return Err(error);
                }
            }
        }
        let ended = first.serve();
        let others = join(handles);
        Ok(ended?.and(others?))
    }
}

/// What each thread needs. They listen at the same places, and share one thread that derives keys.
fn places<D: Dialect>(settings: &Settings) -> Result<(Vec<Place<D>>, Deriver), StartError> {
    let threads = settings.threads.get();
    let reactors = (0..threads).map(|_| Reactor::new()).collect::<Result<Vec<_>, _>>();
    let reactors = reactors.map_err(host("readiness loop"))?;
    let posts = reactors.iter().map(Post::of).collect::<Result<Vec<_>, _>>().map_err(host("threads"))?;
    let first = listeners::open(&settings.listen, &settings.allowed_uids)?;
    let shared = (1..threads).map(|_| listeners::share(&first)).collect::<Result<Vec<_>, _>>();
    let shared = shared.map_err(host("threads"))?;
    let pools = Shared::among(Pool::new(settings.limits.server_connections), threads);
    let listeners = std::iter::once(first).chain(shared);
    let mut places = Vec::new();
    let commons = Commons::among(posts);
    let posts = commons.first().map_or_else(|| Arc::new([]) as Arc<[_]>, |first| Arc::clone(&first.posts));
    let no_thread = |source| host("threads")(Error::Socket { doing: "cannot start a thread", source });
    let deriver = Deriver::start(posts).map_err(no_thread)?;
    let parts = reactors.into_iter().zip(listeners).zip(commons).zip(pools);
    for (((reactor, mut listeners), commons), pool) in parts {
        listeners::watch(&mut listeners, &reactor, threads).map_err(host("listeners"))?;
        places.push(Place { reactor, listeners, commons, pool });
    }
    Ok((places, deriver))
}

fn begin<D: Dialect>(proxy: Proxy<D>) -> Result<JoinHandle<Result<Ended, Error>>, Error> {
    let name = format!("serve-{}", proxy.commons.thread);
    let spawned = thread::Builder::new().name(name).spawn(move || proxy.serve());
    spawned.map_err(|source| Error::Socket { doing: "cannot start a thread", source })
}

/// How all these have ended: as one.
fn join(handles: Vec<JoinHandle<Result<Ended, Error>>>) -> Result<Ended, Error> {
    let ended: Vec<_> = handles.into_iter().map(JoinHandle::join).collect();
    let mut all = Ended::Drained;
    for ended in ended {
        all = all.and(ended.unwrap_or_else(|panic| resume_unwind(panic))?);
    }
    Ok(all)
}

impl Ended {
    fn of(cut_off: usize) -> Self {
        if cut_off == 0 { Self::Drained } else { Self::CutOff(cut_off) }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Drained, ended) | (ended, Self::Drained) => ended,
            (Self::CutOff(some), Self::CutOff(others)) => Self::CutOff(some + others),
        }
    }
}

/// One thread that ends without having been stopped takes the others with it: what it had is lost.
struct Guard<D: Dialect>(Proxy<D>);

impl<D: Dialect> Drop for Guard<D> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.commons.break_off();
        }
    }
}

impl<D: Dialect> Proxy<D> {
    fn at(place: Place<D>, prepared: Prepared<D>, settings: &Settings, ops: Ops, began: Instant) -> Self {
        let Place { reactor, listeners, commons, pool } = place;
        let Prepared { door, dialect, upstream, limits, log } = prepared;
        let (thread, threads) = (commons.thread, commons.threads());
        Self {
            dialect,
            pooling: settings.pooling,
            pool,
            limits,
            server: settings.server.place.to_string(),
            log,
            reactor,
            listeners,
            signals: None,
            door,
            upstream,
            clients: Slab::of_thread(thread, threads),
            servers: Slab::of_thread(thread, threads),
            cancels: Slab::default(),
            by_process: HashMap::new(),
            random: Vec::new(),
            spare: SpareBuffer::default(),
            again: Vec::new(),
            ready: Vec::new(),
            wanting: false,
            early: Vec::new(),
            accept_again: false,
            backoff: Backoff::default(),
            began,
            now: began,
            next_tick: began,
            drain: None,
            ops,
            vacated: Vacated::default(),
            commons,
        }
    }

    /// Serves until all threads are stopped.
    fn serve(self) -> Result<Ended, Error> {
        let mut guard = Guard(self);
        let proxy = &mut guard.0;
        let ended = proxy.turns();
        if ended.is_err() {
            proxy.commons.break_off();
        }
        ended
    }

    fn turns(&mut self) -> Result<Ended, Error> {
        self.is_introduced();
        loop {
            if self.commons.is_broken() {
                return Ok(Ended::of(self.clients.len()));
            }
            if let Some(cut_off) = self.drain.as_ref().map(|drain| drain.cut_off)
                && self.commons.clients() == 0
                && self.commons.close_post()
            {
                for server in self.servers.ids() {
                    self.close_server(server, "the proxy is stopping");
                }
                return Ok(Ended::of(cut_off));
            }
            self.turn()?;
        }
    }
}
