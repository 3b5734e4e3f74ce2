//! Writes capture files.

#[derive(Clone)]
pub(crate) struct FileWriter {
    is_big_endian: bool,
    pub bytes: Vec<u8>,
}

impl FileWriter {
    pub(crate) fn new(is_big_endian: bool) -> Self {
        Self { is_big_endian, bytes: Vec::new() }
    }

    /// A classic file with this magic number.
    pub(crate) fn pcap(is_big_endian: bool, magic: u32, link_type: u32) -> Self {
        let mut file = Self::new(is_big_endian);
        file.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(262_144).u32(link_type);
        file
    }

    /// A packet of a classic file.
    pub(crate) fn record(&mut self, seconds: u32, units: u32, wire_bytes: u32, data: &[u8]) -> &mut Self {
        self.u32(seconds).u32(units).u32(data.len() as u32).u32(wire_bytes).raw(data)
    }

    pub(crate) fn section(&mut self, is_big_endian: bool) -> &mut Self {
        self.is_big_endian = is_big_endian;
        self.block(0x0a0d_0d0a, |body| {
            body.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX);
        })
    }

    /// An interface without a snap length. Options have a code and a value.
    pub(crate) fn interface(&mut self, link_type: u16, options: &[(u16, &[u8])]) -> &mut Self {
        self.block(1, |body| {
            body.u16(link_type).u16(0).u32(0).options(options);
        })
    }

    pub(crate) fn enhanced(&mut self, interface: u32, time: u64, data: &[u8]) -> &mut Self {
        self.enhanced_with(interface, time, data, &[])
    }

    pub(crate) fn enhanced_with(
        &mut self,
        interface: u32,
        time: u64,
        data: &[u8],
        options: &[(u16, &[u8])],
    ) -> &mut Self {
        let bytes = data.len() as u32;
        self.block(6, |body| {
            body.u32(interface).u32((time >> 32) as u32).u32(time as u32).u32(bytes).u32(bytes);
            body.padded(data).options(options);
        })
    }

    pub(crate) fn statistics(&mut self, interface: u32, dropped: u64) -> &mut Self {
        let dropped = if self.is_big_endian { dropped.to_be_bytes() } else { dropped.to_le_bytes() };
        self.block(5, |body| {
            body.u32(interface).u32(0).u32(0).options(&[(4, &[0; 8]), (5, &dropped)]);
        })
    }

    pub(crate) fn block(&mut self, kind: u32, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut body = Self::new(self.is_big_endian);
        fill(&mut body);
        let length = body.bytes.len() as u32 + 12;
        self.u32(kind).u32(length).raw(&body.bytes).u32(length)
    }

    pub(crate) fn options(&mut self, options: &[(u16, &[u8])]) -> &mut Self {
        for (code, value) in options {
            self.u16(*code).u16(value.len() as u16).padded(value);
        }
        if options.is_empty() { self } else { self.u32(0) }
    }

    pub(crate) fn padded(&mut self, data: &[u8]) -> &mut Self {
        let padding = data.len().next_multiple_of(4) - data.len();
        self.raw(data).raw(&[0; 3][..padding])
    }

    pub(crate) fn raw(&mut self, data: &[u8]) -> &mut Self {
        self.bytes.extend(data);
        self
    }

    pub(crate) fn u16(&mut self, number: u16) -> &mut Self {
        let bytes = if self.is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
        self.raw(&bytes)
    }

    pub(crate) fn u32(&mut self, number: u32) -> &mut Self {
        let bytes = if self.is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
        self.raw(&bytes)
    }

    pub(crate) fn u64(&mut self, number: u64) -> &mut Self {
        let bytes = if self.is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
        self.raw(&bytes)
    }
}
