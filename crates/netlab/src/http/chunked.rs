//! A body in chunks (RFC 9112 §7.1): one whose length its sender does not know beforehand.

use std::io::{self, BufRead, Read};

/// The longest line between chunks that is taken.
const MAX_LINE: u64 = 1024;

/// What chunks hold, one after the other, up to the last of them.
#[derive(Debug)]
pub(super) struct Chunked<R> {
    reader: R,
    /// What is left of the chunk under way.
    left: u64,
    /// Whether the last one has come.
    over: bool,
}

impl<R: BufRead> Chunked<R> {
    /// Of what comes behind a request's head.
    pub(super) fn new(reader: R) -> Self {
        Self { reader, left: 0, over: false }
    }

    /// The length of the next chunk; 0 is that of the last, behind which trailers are read, too.
    fn next_length(&mut self) -> io::Result<u64> {
        let mut line = self.line()?;
        // The end of the chunk before.
        if line.trim().is_empty() {
            line = self.line()?;
        }
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = u64::from_str_radix(digits, 16);
        let length = length.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if length == 0 {
            while !self.line()?.trim().is_empty() {}
        }
        Ok(length)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.by_ref().take(MAX_LINE).read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line)
    }
}

impl<R: BufRead> Read for Chunked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.over {
            self.left = self.next_length()?;
            self.over = self.left == 0;
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.reader.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> io::Result<String> {
        let mut body = String::new();
        Chunked::new(text.as_bytes()).read_to_string(&mut body)?;
        Ok(body)
    }

    #[test]
    fn chunks_are_put_together_up_to_the_last() {
        for (text, body) in [
            ("0\r\n\r\n", ""),
            ("3\r\nabc\r\n0\r\n\r\n", "abc"),
            ("3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nx", "abc0123456789"),
        ] {
            assert_eq!(read(text).unwrap(), body, "{text}");
        }
    }

    #[test]
    fn a_body_that_is_cut_or_is_no_chunks_is_an_error() {
        for text in ["", "3\r\nab", "3\r\nabc\r\n", "x\r\nabc\r\n0\r\n\r\n"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
