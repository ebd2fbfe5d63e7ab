//! About what a row takes in memory. Owns the walk over its fields, which is much quicker than
//! writing them down. Must not know what any of them means.

use std::fmt::Error;

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// What a text, a number or the place of a list takes besides what is in it, about.
const PART_BYTES: usize = 24;

/// The texts of a value and a little for each of its parts.
pub(super) fn weight(value: &impl Serialize) -> usize {
    let mut scales = Scales(0);
    // Nothing that is only looked at can go wrong.
    let _weighed = value.serialize(&mut scales);
    scales.0
}

struct Scales(usize);

impl Scales {
    const fn add(&mut self, bytes: usize) {
        self.0 += PART_BYTES + bytes;
    }
}

macro_rules! numbers {
    ($($name:ident: $type:ty),*) => {
        $(fn $name(self, _: $type) -> Result<(), Error> {
            self.add(0);
            Ok(())
        })*
    };
}

macro_rules! opens {
    ($($name:ident($($given:ty),*) -> $parts:ident;)*) => {
        $(fn $name(self, $(_: $given),*) -> Result<Self, Error> {
            self.add(0);
            Ok(self)
        })*
    };
}

impl Serializer for &mut Scales {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    numbers!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64, serialize_f32: f32, serialize_f64: f64, serialize_char: char,
        serialize_unit_struct: &'static str
    );

    opens! {
        serialize_seq(Option<usize>) -> SerializeSeq;
        serialize_tuple(usize) -> SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant;
        serialize_map(Option<usize>) -> SerializeMap;
        serialize_struct(&'static str, usize) -> SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant;
    }

    fn serialize_str(self, text: &str) -> Result<(), Error> {
        self.add(text.len());
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Error> {
        self.add(bytes.len());
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.add(0);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.add(0);
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Error> {
        self.add(0);
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }
}

macro_rules! parts {
    ($($parts:ident: $add:ident($($name:ty)?);)*) => {
        $(impl $parts for &mut Scales {
            type Ok = ();
            type Error = Error;
            fn $add<T: Serialize + ?Sized>(
                &mut self,
                $(_: $name,)?
                value: &T,
            ) -> Result<(), Error> {
                value.serialize(&mut **self)
            }
            fn end(self) -> Result<(), Error> {
                Ok(())
            }
        })*
    };
}

parts! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeStruct: serialize_field(&'static str);
    SerializeStructVariant: serialize_field(&'static str);
}

impl SerializeMap for &mut Scales {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_weigh_what_they_have_and_every_part_a_little() {
        assert_eq!(weight(&"abc"), PART_BYTES + 3);
        assert_eq!(
            weight(&json!({"a": ["bc", 1, null, true]})),
            6 * PART_BYTES + 1 + 2 + PART_BYTES
        );
        assert_eq!(weight(&Some((1.5, [0_u8; 4]))), 7 * PART_BYTES);
    }
}
