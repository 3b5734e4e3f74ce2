//! The text form of a decimal128 ("BSON Decimal128", after IEEE 754-2008).

/// The bias of the stored exponent.
const BIAS: i32 = 6176;
/// A coefficient with more digits is read as 0.
const MAX_COEFFICIENT: u128 = 9_999_999_999_999_999_999_999_999_999_999_999;

/// The number with its stored number of digits: `0.10` keeps its zero.
pub(crate) fn to_text(bytes: [u8; 16]) -> String {
    let bits = u128::from_le_bytes(bytes);
    let sign = if bits >> 127 == 1 { "-" } else { "" };
    // The five bits after the sign identify the special values.
    let combination = (bits >> 122) & 0x1f;
    match combination {
        0x1f => return "NaN".to_owned(),
        0x1e => return format!("{sign}Infinity"),
        _ => {}
    }
    let (exponent, coefficient) = if combination >> 3 == 3 {
        // A coefficient in this encoding has more digits than allowed.
        ((bits >> 111) & 0x3fff, 0)
    } else {
        ((bits >> 113) & 0x3fff, bits & ((1 << 113) - 1))
    };
    let coefficient = if coefficient > MAX_COEFFICIENT { 0 } else { coefficient };
    let exponent = exponent as i32 - BIAS;
    let digits = coefficient.to_string();
    // The exponent in scientific notation.
    let adjusted = i32::try_from(digits.len()).map_or(i32::MAX, |digits| exponent + digits - 1);
    if exponent > 0 || adjusted < -6 {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        return format!("{sign}{first}{point}{rest}E{adjusted:+}");
    }
    let fraction = exponent.unsigned_abs() as usize;
    if fraction == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{digits:0>width$}", width = fraction + 1);
    let (whole, fraction) = padded.split_at(padded.len() - fraction);
    format!("{sign}{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(coefficient: u128, exponent: i32) -> String {
        let bits = coefficient | (((exponent + BIAS) as u128) << 113);
        to_text(bits.to_le_bytes())
    }

    #[test]
    fn texts_match_the_specification() {
        for (coefficient, exponent, text) in [
            (0, 0, "0"),
            (1, 0, "1"),
            (10, -2, "0.10"),
            (1234, -3, "1.234"),
            (12, -7, "0.0000012"),
            (12, -8, "1.2E-7"),
            (12, 3, "1.2E+4"),
            (1, 6, "1E+6"),
            (MAX_COEFFICIENT, 0, "9999999999999999999999999999999999"),
            (MAX_COEFFICIENT + 1, 0, "0"),
        ] {
            assert_eq!(of(coefficient, exponent), text);
        }
        assert_eq!(to_text((0x1f_u128 << 122).to_le_bytes()), "NaN");
        assert_eq!(to_text((0x3e_u128 << 122).to_le_bytes()), "-Infinity");
    }
}
