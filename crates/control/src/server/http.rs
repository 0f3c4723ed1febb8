//! HTTP on the control socket: one short connection for each request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request as HttpRequest, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::{get, post, put};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ropewalk_settings::Scheduling;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;

use super::Connection;
use super::access::Access;
use super::places::{Asking, Holder, Limits, Places};
use super::socket::Bound;
use super::web::{self, Web};
use crate::api::{
    ApiError, DEFAULT_FLOWS, ErrorCode, HistoryQuery, MAX_FLOWS, Request, Response, SpeedTestWish,
};
use crate::metrics;
use crate::query;

/// Connections at a time. All users but root and the daemon's own have fewer together than
/// [`WAITING_COMMANDS`](super::WAITING_COMMANDS), so that they cannot fill the daemon's queue either.
const PLACES: Limits = Limits { keepers: 32, each: 8, others: 16 };
const _: () = assert!(PLACES.others < super::WAITING_COMMANDS);

/// Bytes of the longest request line and headers.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Bytes of the longest body of a request.
const MAX_BODY_BYTES: usize = 64 << 10;

/// How long the line and the headers of a request may take: a tool sends them at once.
const HEAD_TIME: Duration = Duration::from_secs(2);

/// How long one connection may take in all: a tool asks and goes.
const CONNECTION_TIME: Duration = Duration::from_secs(10);

/// How long to rest when the system cannot accept (too many open files).
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The credentials of the other end of a connection.
#[derive(Clone, Copy)]
struct Peer {
    uid: u32,
    gid: u32,
}

/// Serves connections until told to stop, then removes the socket.
pub(super) async fn serve(
    bound: Bound,
    web: Option<Web>,
    connection: Connection,
    stopped: oneshot::Receiver<()>,
) {
    let page = web.map(|web| web::serve(web, connection.clone()));
    let page = async {
        match page {
            Some(page) => page.await,
            None => std::future::pending().await,
        }
    };
    let accept = async {
        match bound.listener.try_clone().and_then(UnixListener::from_std) {
            Ok(listener) => {
                let access = Arc::clone(&connection.access);
                let router = router(connection);
                let next = async || {
                    let (stream, _) = listener.accept().await?;
                    let (peer, holder) = who(&stream, &access)?;
                    Ok(((stream, peer), holder))
                };
                let serve = |(stream, peer), asking| {
                    converse(stream, router.clone().layer(Extension::<Peer>(peer)), asking)
                };
                accept("control socket", PLACES, next, serve).await;
            }
            Err(error) => tracing::error!(%error, "the control socket cannot be served"),
        }
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(accept, page) } => {}
        // Told to stop, or the daemon is gone.
        _ = stopped => {}
    }
}

/// Serves connections for ever. `next` gives one and says whose it is; `name` is what they are to, for the log.
pub(super) async fn accept<S, F>(
    name: &'static str,
    limits: Limits,
    next: impl AsyncFn() -> io::Result<(S, Holder)>,
    serve: impl Fn(S, Asking) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Places::new(limits);
    loop {
        match next().await {
            Ok((stream, holder)) => {
                let Some(mut place) = places.take(holder) else {
                    tracing::debug!(?holder, "too many connections to the {name}");
                    continue;
                };
                let served = serve(stream, place.asking());
                tokio::spawn(async move {
                    tokio::select! {
                        served = tokio::time::timeout(CONNECTION_TIME, served) => {
                            if served.is_err() {
                                tracing::debug!("a connection to the {name} took too long");
                            }
                        }
                        _ = &mut place.lost => {
                            tracing::debug!("an idle connection to the {name} made room for another");
                        }
                    }
                });
                // So that those who connect without a pause do not hold up those who ask.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                tracing::debug!(%error, "the {name} accepts nothing");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
}

/// Whose a connection is, and among whom it has its place.
fn who(stream: &UnixStream, access: &Access) -> io::Result<(Peer, Holder)> {
    let credentials = stream.peer_cred()?;
    let peer = Peer { uid: credentials.uid(), gid: credentials.gid() };
    let is_keeper = access.users.contains(&peer.uid);
    Ok((peer, if is_keeper { Holder::Keeper } else { Holder::User(peer.uid) }))
}

/// Serves the one request of a connection.
pub(super) async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    asking: Asking,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        asking.begin();
        router.call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection failed");
    }
}

fn router(connection: Connection) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/metrics", get(numbers))
        .route("/v1/scheduling", get(scheduling).put(set_scheduling))
        .route("/v1/flows", get(flows))
        .route("/v1/forwards", get(forwards))
        .route(HistoryQuery::PATH, get(history))
        .route("/v1/links", put(change_link))
        .route("/v1/routes", get(routes).put(change_routes))
        .route("/v1/proxies", get(proxies).put(use_proxy))
        .route("/v1/speedtest", get(speed_test).post(start_speed_test).delete(end_speed_test))
        .route("/v1/reload", post(reload))
        .route("/v1/peers", get(peers).post(invite).put(enable_peer).delete(remove_peer))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(connection.clone(), authorize))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(connection)
}

/// Refuses whoever may not talk to this daemon, before anything else is looked at.
async fn authorize(
    State(connection): State<Connection>,
    Extension(peer): Extension<Peer>,
    request: HttpRequest<Body>,
    next: Next,
) -> HttpResponse {
    if connection.access.allows(peer.uid, peer.gid) {
        return next.run(request).await;
    }
    tracing::warn!(uid = peer.uid, gid = peer.gid, "refused on the control socket");
    let message = format!(
        "the user with uid {} may not talk to this daemon: use sudo, or be a member of the group that its config \
         names in [control]",
        peer.uid
    );
    refusal(&ApiError::new(ErrorCode::Forbidden, message))
}

/// `GET /v1/status`. The body is read, although it says nothing, so that a long one is refused.
async fn status(State(connection): State<Connection>, _body: Bytes) -> HttpResponse {
    answer(&connection, Ok(Request::Status)).await
}

/// `GET /metrics`: the status as Prometheus reads it.
async fn numbers(State(connection): State<Connection>, _body: Bytes) -> HttpResponse {
    match connection.ask(Request::Status).await {
        Ok(Response::Status(report)) => {
            ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&report)).into_response()
        }
        Ok(other) => document(other),
        Err(error) => refusal(&error),
    }
}

/// `GET /v1/scheduling`, of all or of `?peer=NAME`.
async fn scheduling(State(connection): State<Connection>, uri: Uri, _body: Bytes) -> HttpResponse {
    let request = query::read(uri.query(), ["peer"]).map(|[peer]| Request::Scheduling { peer });
    answer(&connection, request).await
}

/// `PUT /v1/scheduling`, for all or for `?peer=NAME`.
async fn set_scheduling(
    State(connection): State<Connection>,
    uri: Uri,
    body: Bytes,
) -> HttpResponse {
    let read = || {
        let [peer] = query::read(uri.query(), ["peer"])?;
        let scheduling: Scheduling =
            serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        scheduling.check().map_err(|error| error.to_string())?;
        Ok(Request::SetScheduling { peer, scheduling: Box::new(scheduling) })
    };
    answer(&connection, read()).await
}

/// `GET /v1/flows`, towards `?peer=NAME`, at most `?limit=N`.
async fn flows(State(connection): State<Connection>, uri: Uri, _body: Bytes) -> HttpResponse {
    let read = || {
        let [peer, limit] = query::read(uri.query(), ["peer", "limit"])?;
        let limit = match limit {
            None => DEFAULT_FLOWS,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| *limit <= MAX_FLOWS)
                .ok_or_else(|| format!("limit={text} is no number from 0 to {MAX_FLOWS}"))?,
        };
        Ok(Request::Flows { peer, limit })
    };
    answer(&connection, read()).await
}

/// `GET /v1/forwards`.
async fn forwards(State(connection): State<Connection>, _body: Bytes) -> HttpResponse {
    answer(&connection, Ok(Request::Forwards)).await
}

/// `GET /v1/history`, of the last `?since=SECONDS`, with at most `?points=N` and `?events=N`, of all links or of `?link=NAME`.
async fn history(State(connection): State<Connection>, uri: Uri, _body: Bytes) -> HttpResponse {
    answer(&connection, HistoryQuery::read(uri.query()).map(Request::History)).await
}

/// `PUT /v1/links`.
async fn change_link(State(connection): State<Connection>, body: Bytes) -> HttpResponse {
    let change = serde_json::from_slice(&body).map_err(|error| error.to_string());
    answer(&connection, change.map(Request::ChangeLink)).await
}

/// `GET /v1/routes`.
async fn routes(State(connection): State<Connection>, _body: Bytes) -> HttpResponse {
    answer(&connection, Ok(Request::Routes)).await
}

/// `PUT /v1/routes`.
async fn change_routes(State(connection): State<Connection>, body: Bytes) -> HttpResponse {
    let change = serde_json::from_slice(&body).map_err(|error| error.to_string());
    answer(&connection, change.map(Request::ChangeRoutes)).await
}

/// `GET /v1/proxies`.
async fn proxies(State(connection): State<Connection>, _body: Bytes) -> HttpResponse {
    answer(&connection, Ok(Request::Proxies)).await
}

/// `PUT /v1/proxies?use=NAME`.
async fn use_proxy(State(connection): State<Connection>, uri: Uri, _body: Bytes) -> HttpResponse {
    let read = query::read(uri.query(), ["use"]);
    let request = read.and_then(|[name]| match name {
        Some(name) => Ok(Request::UseProxy { name }),
        None => Err("say which: ?use=NAME".to_owned()),
    });
    answer(&connection, request).await
}

/// `POST /v1/speedtest`.
async fn start_speed_test(State(connection): State<Connection>, body: Bytes) -> HttpResponse {
    let read = || {
        let wish: SpeedTestWish =
            serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        wish.check()?;
        Ok(Request::StartSpeedTest(wish))
    };
    answer(&connection, read()).await
}

/// `GET /v1/speedtest?id=ID`.
async fn speed_test(State(connection): State<Connection>, uri: Uri, _body: Bytes) -> HttpResponse {
    answer(&connection, test_id(&uri).map(|id| Request::SpeedTest { id })).await
}

/// `DELETE /v1/speedtest?id=ID`.
async fn end_speed_test(
    State(connection): State<Connection>,
    uri: Uri,
    _body: Bytes,
) -> HttpResponse {
    answer(&connection, test_id(&uri).map(|id| Request::EndSpeedTest { id })).await
}

fn test_id(uri: &Uri) -> Result<u64, String> {
    let [id] = query::read(uri.query(), ["id"])?;
    let id = id.ok_or_else(|| "say which: ?id=ID".to_owned())?;
    id.parse().map_err(|_| format!("id={} is no number", id.escape_debug()))
}

/// `POST /v1/reload`. The body is read, although it says nothing, so that a long one is refused.
async fn reload(State(connection): State<Connection>, _body: Bytes) -> HttpResponse {
    answer(&connection, Ok(Request::Reload)).await
}

/// `GET /v1/peers`.
async fn peers(State(connection): State<Connection>, _body: Bytes) -> HttpResponse {
    answer(&connection, Ok(Request::Peers)).await
}

/// `POST /v1/peers`.
async fn invite(State(connection): State<Connection>, body: Bytes) -> HttpResponse {
    let wish = serde_json::from_slice(&body).map_err(|error| error.to_string());
    answer(&connection, wish.map(Request::Invite)).await
}

/// `DELETE /v1/peers?name=NAME`.
async fn remove_peer(State(connection): State<Connection>, uri: Uri, _body: Bytes) -> HttpResponse {
    let read = query::read(uri.query(), ["name"]);
    let request = read.and_then(|[name]| match name {
        Some(name) => Ok(Request::RemovePeer { name }),
        None => Err("say which: ?name=NAME".to_owned()),
    });
    answer(&connection, request).await
}

/// `PUT /v1/peers?name=NAME&enabled=true`, or `=false`.
async fn enable_peer(State(connection): State<Connection>, uri: Uri, _body: Bytes) -> HttpResponse {
    let read = query::read(uri.query(), ["name", "enabled"]);
    let request =
        read.and_then(|[name, enabled]| match (name, enabled.as_deref().map(str::parse::<bool>)) {
            (Some(name), Some(Ok(enabled))) => Ok(Request::EnablePeer { name, enabled }),
            _ => Err("say which, and whether it is let in: ?name=NAME&enabled=true".to_owned()),
        });
    answer(&connection, request).await
}

/// What the daemon says to a request, or what is wrong with it.
async fn answer(connection: &Connection, request: Result<Request, String>) -> HttpResponse {
    let answer = match request {
        Ok(request) => connection.ask(request).await,
        Err(message) => Err(ApiError::new(ErrorCode::BadRequest, message)),
    };
    match answer {
        Ok(answer) => document(answer),
        Err(error) => refusal(&error),
    }
}

fn document(answer: Response) -> HttpResponse {
    match answer {
        Response::Status(report) => Json(*report).into_response(),
        Response::Scheduling(scheduling) => Json(*scheduling).into_response(),
        Response::Flows(flows) => Json(*flows).into_response(),
        Response::Forwards(report) => Json(*report).into_response(),
        Response::History(report) => Json(*report).into_response(),
        Response::Link(settings) => Json(*settings).into_response(),
        Response::Routes(report) => Json(*report).into_response(),
        Response::Proxies(report) => Json(*report).into_response(),
        Response::SpeedTest(report) => Json(*report).into_response(),
        Response::Reloaded(report) => Json(*report).into_response(),
        Response::Peers(report) => Json(*report).into_response(),
        Response::Invited(invited) => Json(*invited).into_response(),
        Response::Removed(removed) => Json(*removed).into_response(),
        Response::Enabled(enabled) => Json(*enabled).into_response(),
    }
}

async fn not_found() -> HttpResponse {
    let message = "there is nothing at this path; GET /v1/status gives the status";
    refusal(&ApiError::new(ErrorCode::NotFound, message))
}

async fn wrong_method() -> HttpResponse {
    let error = ApiError::new(
        ErrorCode::BadRequest,
        "this path is not used so: read with GET; /v1/scheduling, /v1/links, /v1/routes and /v1/proxies are written with PUT, \
         /v1/peers with POST, PUT and DELETE, /v1/speedtest with POST and DELETE, /v1/reload with POST",
    );
    (StatusCode::METHOD_NOT_ALLOWED, Json(error)).into_response()
}

pub(super) fn refusal(error: &ApiError) -> HttpResponse {
    let status = match error.code {
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::BadRequest => StatusCode::BAD_REQUEST,
        ErrorCode::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorCode::Busy => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(error)).into_response()
}
