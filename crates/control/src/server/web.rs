//! The page with the links and Prometheus' numbers over TCP, for programs of this machine.
//!
//! TCP has no credentials: whoever has a login on this machine may read the page, and so may every page that one of its
//! browsers shows, if nothing is done against that. Therefore:
//!
//! * only addresses of the loopback interface are listened at (the config refuses others);
//! * a request must name this machine as its host, so that no name of somebody else's that leads here (DNS rebinding)
//!   makes a foreign page one of ours;
//! * nothing can be changed here, no other origin is let in, and what is shown runs no script but its own
//!   ([`policy`]);
//! * the daemon is asked at most every [`LEAST_AGE`] how it is, and as often what it remembers, however many ask, so that nobody
//!   can hold up its loop or take the control socket's place in the queue;
//! * where packets go is not told: no flow is asked for.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{Request as HttpRequest, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response as HttpResponse};
use axum::routing::get;
use data_encoding::BASE64;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener as TokioListener;
use tokio::sync::Mutex;

use super::http::{accept, converse, refusal};
use super::places::{Holder, Limits};
use super::recent::{self, Recent};
use super::{BindError, Connection};
use crate::api::{
    ApiError, ErrorCode, HistoryQuery, HistoryReport, Request, Response, StatusReport, TunnelState,
};
use crate::metrics;
use crate::why::{WhyReport, judge};

/// The page: one file, which needs nothing else but what is served beside it. Its script is put together of several.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let page = include_str!("page.html").replace("// past.js\n", include_str!("page/past.js"));
    page.replace("// why.js\n", include_str!("page/why.js"))
});

/// Connections at a time. TCP does not say whose they are: all share these.
const PLACES: Limits = Limits { keepers: 0, each: 0, others: 16 };

/// How old an answer of the daemon may be: less than the second in which the page asks again.
const LEAST_AGE: Duration = Duration::from_millis(250);

/// How old an answer about the past may be: it changes every ten seconds.
const PAST_AGE: Duration = Duration::from_secs(2);

/// What limits a link is judged by two looks so far apart, as `ropewalk why` does.
const JUDGED_OVER: Duration = Duration::from_secs(2);

/// Tunnels that are judged: as many as the page shows.
const MOST_JUDGED: usize = 50;

/// Who may be asked for: the other end of a name that leads here is not always this machine's user.
const LOCAL_NAME: &str = "localhost";

/// A listening socket of the loopback interface.
#[derive(Debug)]
pub(super) struct Web {
    listener: TcpListener,
    pub(super) address: SocketAddr,
}

impl Web {
    /// Listens.
    pub(super) fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError::Web { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }
}

/// Serves connections for ever.
pub(super) async fn serve(web: Web, connection: Connection) {
    let listener = match TokioListener::from_std(web.listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the page cannot be served");
            return;
        }
    };
    let lookout = Arc::new(Lookout::new(connection));
    let router = router(Arc::clone(&lookout));
    let next = async || listener.accept().await.map(|(stream, _)| (stream, Holder::Somebody));
    let serve = |stream, asking| converse(stream, router.clone(), asking);
    tokio::join!(accept("page", PLACES, next, serve), remember(&lookout));
}

/// Notes for ever what is carried, whether somebody looks or not.
async fn remember(lookout: &Lookout) {
    let mut before = Instant::now();
    loop {
        tokio::time::sleep(recent::STEP).await;
        // A daemon that is busy, or ends, is looked at the next time; the step is longer then.
        let Ok(report) = lookout.look().await else { continue };
        let now = Instant::now();
        lookout.recent.lock().await.note(&report, now.duration_since(before));
        before = now;
    }
}

fn router(lookout: Arc<Lookout>) -> Router {
    Router::new()
        .route("/", get(async || Html(PAGE.as_str())))
        .route("/metrics", get(numbers))
        .route("/v1/status", get(status))
        .route("/v1/recent", get(recent_rates))
        .route(HistoryQuery::PATH, get(history))
        .route("/v1/why", get(why))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(guard))
        .with_state(lookout)
}

/// Asks the daemon no more often than needed.
struct Lookout {
    connection: Connection,
    latest: Mutex<Option<(Instant, Arc<StatusReport>)>>,
    recent: Mutex<Recent>,
    past: Mutex<Past>,
}

/// The last question about the past, and its answer.
#[derive(Default)]
struct Past {
    asked: Option<Instant>,
    answer: Option<(HistoryQuery, Arc<HistoryReport>)>,
}

impl Lookout {
    fn new(connection: Connection) -> Self {
        let (recent, past) = (Mutex::default(), Mutex::default());
        Self { connection, latest: Mutex::new(None), recent, past }
    }

    /// How things are, or were a moment ago.
    async fn look(&self) -> Result<Arc<StatusReport>, ApiError> {
        // Held while the daemon is asked, so that others wait for the same answer.
        let mut latest = self.latest.lock().await;
        if let Some((at, report)) = &*latest
            && at.elapsed() < LEAST_AGE
        {
            return Ok(Arc::clone(report));
        }
        match self.connection.ask(Request::Status).await? {
            Response::Status(report) => {
                let report = Arc::<StatusReport>::from(report);
                *latest = Some((Instant::now(), Arc::clone(&report)));
                Ok(report)
            }
            _ => Err(something_else()),
        }
    }

    /// What the daemon remembers, or did a moment ago.
    async fn remembered(&self, query: HistoryQuery) -> Result<Arc<HistoryReport>, ApiError> {
        // Held while the daemon is asked: one question after the other.
        let mut past = self.past.lock().await;
        let age = past.asked.map_or(Duration::MAX, |asked| asked.elapsed());
        if let Some((known, report)) = &past.answer
            && *known == query
            && age < PAST_AGE
        {
            return Ok(Arc::clone(report));
        }
        tokio::time::sleep(LEAST_AGE.saturating_sub(age)).await;
        past.asked = Some(Instant::now());
        match self.connection.ask(Request::History(query.clone())).await? {
            Response::History(report) => {
                let report = Arc::<HistoryReport>::from(report);
                past.answer = Some((query, Arc::clone(&report)));
                Ok(report)
            }
            _ => Err(something_else()),
        }
    }

    /// What limits each link. Of one flow nothing is said: it would name where that goes.
    async fn judged(&self) -> Result<WhyReport, ApiError> {
        let earlier = self.look().await?;
        tokio::time::sleep(JUDGED_OVER).await;
        let later = self.look().await?;
        let few = later.tunnels.len() <= MOST_JUDGED;
        let shown = later.tunnels.iter().filter(|one| few || one.state == TunnelState::Up);
        let later = StatusReport {
            version: later.version,
            daemon: later.daemon.clone(),
            tunnels: shown.take(MOST_JUDGED).cloned().collect(),
            drops: BTreeMap::new(),
            proxy: None,
            proxies: None,
            rules: Vec::new(),
        };
        Ok(judge(&earlier, &later, &[]))
    }
}

fn something_else() -> ApiError {
    ApiError::new(ErrorCode::Failed, "the daemon answered something else")
}

async fn status(State(lookout): State<Arc<Lookout>>) -> HttpResponse {
    match lookout.look().await {
        Ok(report) => axum::Json(&*report).into_response(),
        Err(error) => refusal(&error),
    }
}

/// `GET /v1/recent`: what was carried in the last ten minutes.
async fn recent_rates(State(lookout): State<Arc<Lookout>>) -> HttpResponse {
    axum::Json(&*lookout.recent.lock().await).into_response()
}

/// `GET /v1/history`, as at the control socket.
async fn history(State(lookout): State<Arc<Lookout>>, uri: Uri) -> HttpResponse {
    let answer = match HistoryQuery::read(uri.query()) {
        Ok(query) => lookout.remembered(query).await,
        Err(message) => Err(ApiError::new(ErrorCode::BadRequest, message)),
    };
    match answer {
        Ok(report) => axum::Json(&*report).into_response(),
        Err(error) => refusal(&error),
    }
}

/// `GET /v1/why`: what limits each link, as `ropewalk why` says.
async fn why(State(lookout): State<Arc<Lookout>>) -> HttpResponse {
    match lookout.judged().await {
        Ok(report) => axum::Json(report).into_response(),
        Err(error) => refusal(&error),
    }
}

async fn numbers(State(lookout): State<Arc<Lookout>>) -> HttpResponse {
    match lookout.look().await {
        Ok(report) => {
            ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&report)).into_response()
        }
        Err(error) => refusal(&error),
    }
}

async fn not_found() -> HttpResponse {
    let message = "there is nothing at this path: / is the page, /metrics the numbers for Prometheus, /v1/status the \
                   status, /v1/recent what was carried in the last ten minutes, /v1/history what is remembered, /v1/why what \
                   limits each link";
    refusal(&ApiError::new(ErrorCode::NotFound, message))
}

async fn wrong_method() -> HttpResponse {
    let error = ApiError::new(ErrorCode::BadRequest, "nothing can be changed here: read with GET");
    (StatusCode::METHOD_NOT_ALLOWED, axum::Json(error)).into_response()
}

/// Refuses requests for another host, and says to browsers what they may do with the answer.
async fn guard(request: HttpRequest<Body>, next: Next) -> HttpResponse {
    let mut answer = if is_for_us(&request) {
        next.run(request).await
    } else {
        let message = "this is served under this machine's own names only: ask for localhost, 127.0.0.1 or [::1]";
        let error = ApiError::new(ErrorCode::Forbidden, message);
        (StatusCode::MISDIRECTED_REQUEST, axum::Json(error)).into_response()
    };
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(CONTENT_SECURITY_POLICY, policy());
    answer
}

const HEADERS: [(HeaderName, &str); 5] = [
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Whether a request names this machine as its host, in its header and, where it has one, in its target.
fn is_for_us(request: &HttpRequest<Body>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = host.to_str() else { return false };
    is_local(host) && request.uri().authority().is_none_or(|target| is_local(target.as_str()))
}

/// Whether this is a name or address of this machine that cannot be anybody else's, at any port (one that is
/// forwarded may be another).
fn is_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case(LOCAL_NAME)
        || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What the page may load: its own script and style, known by their hashes, and what is served beside it.
fn policy() -> HeaderValue {
    static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
        let hash = |element: &str| {
            let hash = BASE64.encode(&Sha256::digest(inside(&PAGE, element)));
            format!("'sha256-{hash}'")
        };
        let (script, style) = (hash("script"), hash("style"));
        let policy = format!(
            "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'"
        );
        HeaderValue::try_from(policy).expect("base64 is visible ASCII")
    });
    POLICY.clone()
}

/// What stands inside the one element of this name.
fn inside<'a>(page: &'a str, element: &str) -> &'a str {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let rest = page.split_once(&open).map_or("", |(_, rest)| rest);
    rest.split_once(&close).map_or("", |(inside, _)| inside)
}

#[cfg(test)]
mod tests;
