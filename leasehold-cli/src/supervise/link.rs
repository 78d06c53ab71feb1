//! The socket between `run` and its supervisor: lines both ways, and once some descriptors.
//!
//! Descriptors are not inherited by number, so nothing else that is started can inherit them.

use std::fmt::Display;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};

/// The lines that the other side sends; they end when it dies.
pub(super) type Received = Lines<BufReader<tokio::net::UnixStream>>;

/// Where lines for the other side are written.
#[derive(Debug)]
pub(super) struct Sender(UnixStream);

impl Sender {
    /// Sends a line. Whether it was sent: one who is dead or does not read is not waited for.
    pub(super) fn send(&self, line: impl Display) -> bool {
        let line = format!("{line}\n");
        matches!((&self.0).write(line.as_bytes()), Ok(sent) if sent == line.len())
    }
}

/// Both directions of the socket.
pub(super) fn split(socket: UnixStream) -> io::Result<(Received, Sender)> {
    socket.set_nonblocking(true)?;
    let sender = Sender(socket.try_clone()?);
    let received = BufReader::new(tokio::net::UnixStream::from_std(socket)?).lines();
    Ok((received, sender))
}

/// Standard input and output, and the hold file.
const MOST: usize = 3;

/// Sends descriptors, before any line.
pub(super) fn pass(socket: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors"));
    }
    sendmsg(
        socket,
        &[IoSlice::new(b"\n")],
        &mut control,
        SendFlags::empty(),
    )?;
    Ok(())
}

/// Receives what [`pass`] sent.
pub(super) fn receive(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let iov = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(socket, iov, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    Ok(control
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        })
        .collect())
}
