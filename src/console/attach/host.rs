//! The bot's side: every attached terminal, and the channel that posts to them. Owns which
//! terminal follows which chat, and what was posted in this boot. Must not know the wire.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::wire::{Seen, Tell};
use super::{AttachError, Place};
use crate::console::ChatName;
use crate::console::channel::chat_of;
use crate::core::execution::Address;
use crate::core::id::{Principal, SessionId};
use crate::core::limits::{
    CHATS_MAX, TERMINAL_OTHERS_MS_MAX, TERMINAL_POSTS_KEPT_MAX, TERMINAL_SHOWN_MS_MAX,
    TERMINALS_MAX,
};
use crate::ports::{Channel, ChannelError, Clock, Desk, Post, Progress};

/// What the host is told by the composition root.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The data directory, in which the socket stands.
    pub directory: PathBuf,
    /// This process; posts are numbered within it.
    pub boot: String,
    /// Whose messages those of the terminals are.
    pub principal: Principal,
    /// Lines under a terminal's greeting.
    pub banner: Vec<String>,
}

/// One attached terminal.
struct Guest {
    chats: BTreeSet<ChatName>,
    out: mpsc::Sender<Tell>,
    /// Who waits until it has shown a post, by the post's number.
    waiting: HashMap<u64, oneshot::Sender<()>>,
    /// Ends its connection.
    gone: CancellationToken,
}

/// A post of this boot, for who was away when it came.
struct Kept {
    no: u64,
    chat: ChatName,
    reference: String,
    post: Post,
}

#[derive(Default)]
struct Hall {
    guests: BTreeMap<u64, Guest>,
    guests_so_far: u64,
    posts_so_far: u64,
    kept: VecDeque<Kept>,
    closed: bool,
}

/// The channel of every attached terminal.
pub struct Host {
    pub(super) settings: Settings,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) desk: OnceLock<Arc<dyn Desk>>,
    place: Place,
    hall: Mutex<Hall>,
    pub(super) ending: CancellationToken,
}

impl Host {
    /// The channel, before there is a desk.
    pub fn open(settings: Settings, clock: Arc<dyn Clock>) -> Result<Arc<Self>, AttachError> {
        let place = Place::open(&settings.directory).map_err(|source| AttachError::Socket {
            directory: settings.directory.clone(),
            source,
        })?;
        Ok(Arc::new(Self {
            settings,
            clock,
            desk: OnceLock::new(),
            place,
            hall: Mutex::default(),
            ending: CancellationToken::new(),
        }))
    }

    /// Takes the socket and lets terminals in until [`Host::close`]. A socket that a dead bot left
    /// is removed.
    pub fn serve(
        self: &Arc<Self>,
        desk: Arc<dyn Desk>,
    ) -> Result<BoxFuture<'static, ()>, AttachError> {
        let directory = self.settings.directory.clone();
        if super::is_served(&directory) {
            return Err(AttachError::Held { directory });
        }
        let no = |source| AttachError::Socket { directory: directory.clone(), source };
        let path = self.place.socket();
        let _not_there = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(no)?;
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, owner_only).map_err(no)?;
        let _once = self.desk.set(desk);
        Ok(super::service::welcome(Arc::clone(self), listener).boxed())
    }

    /// Is the socket where terminals look for it?
    pub fn is_open(&self) -> bool {
        use std::os::unix::fs::FileTypeExt as _;
        let file = Path::new(&self.place.socket()).metadata();
        file.is_ok_and(|file| file.file_type().is_socket())
    }

    /// Terminals that are attached.
    pub fn terminals(&self) -> usize {
        self.hall().guests.len()
    }

    /// Says good-bye to every terminal and takes the socket away. What is posted from now on waits.
    pub fn close(&self) {
        let mut hall = self.hall();
        hall.closed = true;
        for guest in hall.guests.values() {
            let _full = guest.out.try_send(Tell::Bye);
        }
        let _gone_already = std::fs::remove_file(self.place.socket());
        self.ending.cancel();
    }

    fn hall(&self) -> MutexGuard<'_, Hall> {
        self.hall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn show(&self, post: Post) -> Result<String, ChannelError> {
        let chat = chat_of(&post.session, &post.address).ok_or_else(|| ChannelError::Never {
            what: format!("session {} has no chat of a terminal", post.session),
        })?;
        let reference = format!("{}#{}", post.session, post.item);
        let mut shown: FuturesUnordered<_> = self.hall().send(&chat, &reference, &post).collect();
        let mut somewhere = false;
        let mut until = self.sleep(TERMINAL_SHOWN_MS_MAX);
        loop {
            tokio::select! {
                one = shown.next() => match one {
                    Some(Ok(())) if !somewhere => {
                        somewhere = true;
                        // The others have it on their way.
                        until = self.sleep(TERMINAL_OTHERS_MS_MAX);
                    }
                    Some(_) => {}
                    None => break,
                },
                () = &mut until => break,
                () = self.ending.cancelled() => break,
            }
        }
        if somewhere {
            return Ok(reference);
        }
        let what = "no terminal that follows this chat has shown it".to_owned();
        Err(ChannelError::Retry { what, after_ms: 0 })
    }

    pub(super) fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(self.clock.now().plus_ms(ms))
    }
}

/// For the connection of one terminal.
impl Host {
    /// Lets a terminal in that follows these chats, with what it missed since `seen` before it.
    /// Answers its number and how far the posts of this boot are; `None` when there is no room.
    pub(super) fn let_in(
        &self,
        out: mpsc::Sender<Tell>,
        gone: CancellationToken,
        (chats, seen): (BTreeSet<ChatName>, Option<Seen>),
        welcome: impl FnOnce(u64) -> Tell,
    ) -> Option<u64> {
        let mut hall = self.hall();
        if hall.closed || hall.guests.len() >= TERMINALS_MAX {
            return None;
        }
        hall.guests_so_far += 1;
        let number = hall.guests_so_far;
        let _room = out.try_send(welcome(hall.posts_so_far));
        let upto = seen.map(|seen| if seen.boot == self.settings.boot { seen.upto } else { 0 });
        if let Some(upto) = upto {
            let missed =
                hall.kept.iter().filter(|kept| kept.no > upto && chats.contains(&kept.chat));
            for kept in missed {
                let _room = out.try_send(Tell::Post { no: kept.no, post: kept.post.clone() });
            }
        }
        hall.guests.insert(number, Guest { chats, out, waiting: HashMap::new(), gone });
        Some(number)
    }

    /// From now on it follows the chat of this session as well. Answers whether it did not before.
    pub(super) fn follow(&self, guest: u64, session: &SessionId) -> bool {
        let Some(chat) = ChatName::of_session(session) else { return false };
        let mut hall = self.hall();
        let Some(guest) = hall.guests.get_mut(&guest) else { return false };
        guest.chats.len() < CHATS_MAX && guest.chats.insert(chat)
    }

    pub(super) fn follows(&self, guest: u64, session: &SessionId) -> bool {
        let Some(chat) = ChatName::of_session(session) else { return false };
        self.hall().guests.get(&guest).is_some_and(|guest| guest.chats.contains(&chat))
    }

    pub(super) fn sessions_of(&self, guest: u64) -> Vec<SessionId> {
        let hall = self.hall();
        let chats = hall.guests.get(&guest).map(|guest| guest.chats.iter());
        chats.into_iter().flatten().filter_map(|chat| chat.session().ok()).collect()
    }

    /// It has shown a post.
    pub(super) fn shown(&self, guest: u64, no: u64) {
        let waits = self.hall().guests.get_mut(&guest).and_then(|guest| guest.waiting.remove(&no));
        if let Some(waits) = waits {
            let _gave_up = waits.send(());
        }
    }

    pub(super) fn let_out(&self, guest: u64) {
        self.hall().guests.remove(&guest);
    }
}

impl Hall {
    /// Sends a post to all who follow its chat; each receiver hears when it is shown there.
    fn send(
        &mut self,
        chat: &ChatName,
        reference: &str,
        post: &Post,
    ) -> std::vec::IntoIter<oneshot::Receiver<()>> {
        let known = self.kept.iter().find(|kept| kept.reference == reference).map(|kept| kept.no);
        let no = known.unwrap_or(self.posts_so_far + 1);
        let mut shown = Vec::new();
        for guest in self.guests.values_mut().filter(|guest| guest.chats.contains(chat)) {
            // One that reads so slowly is cut off; it comes back and gets what it missed.
            if guest.out.try_send(Tell::Post { no, post: post.clone() }).is_err() {
                guest.gone.cancel();
                continue;
            }
            let (tell, hear) = oneshot::channel();
            guest.waiting.insert(no, tell);
            shown.push(hear);
        }
        if known.is_none() && !shown.is_empty() {
            self.posts_so_far = no;
            if self.kept.len() >= TERMINAL_POSTS_KEPT_MAX {
                self.kept.pop_front();
            }
            let (chat, reference, post) = (chat.clone(), reference.to_owned(), post.clone());
            self.kept.push_back(Kept { no, chat, reference, post });
        }
        shown.into_iter()
    }
}

impl Channel for Host {
    fn post(&self, post: Post) -> BoxFuture<'_, Result<String, ChannelError>> {
        self.show(post).boxed()
    }

    fn progress(&self, session: &SessionId, address: &Address, progress: Progress) {
        let Some(chat) = chat_of(session, address) else { return };
        for guest in self.hall().guests.values().filter(|guest| guest.chats.contains(&chat)) {
            // One that is behind loses progress, never a post.
            let _full = guest
                .out
                .try_send(Tell::Progress { session: session.clone(), progress: progress.clone() });
        }
    }

    fn reaches(&self, address: &Address) -> bool {
        // What is no chat is refused when it is posted.
        let Some(chat) = ChatName::of(address) else { return true };
        self.hall().guests.values().any(|guest| guest.chats.contains(&chat))
    }
}
