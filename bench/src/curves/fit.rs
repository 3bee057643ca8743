//! The straight line through points.

/// `at_zero + slope * x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) at_zero: f64,
    pub(super) slope: f64,
    /// The share of the variation that it explains (the coefficient of determination).
    pub(super) explained: f64,
}

/// The line with the least squares of distances; `None` for fewer than two different `x`.
pub(super) fn line(points: &[(f64, f64)]) -> Option<Line> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        let centred = points.iter().map(|(x, y)| of(x - mean_x, y - mean_y));
        centred.sum()
    };
    let xx = spread(&|x, _| x * x);
    let xy = spread(&|x, y| x * y);
    let yy = spread(&|_, y| y * y);
    if points.len() < 2 || xx == 0.0 {
        return None;
    }
    let slope = xy / xx;
    Some(Line {
        at_zero: mean_y - slope * mean_x,
        slope,
        explained: if yy == 0.0 { 1.0 } else { xy * xy / (xx * yy) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_is_found_and_explains_everything() {
        let found = line(&[(0.0, 5.0), (10.0, 25.0), (20.0, 45.0)]).unwrap();
        assert!((found.at_zero - 5.0).abs() < 1e-9);
        assert!((found.slope - 2.0).abs() < 1e-9);
        assert!((found.explained - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_line_is_explained_badly() {
        let found = line(&[(0.0, 0.0), (1.0, 9.0), (2.0, 0.0)]).unwrap();
        assert!(found.explained < 0.1);
        assert_eq!(line(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(line(&[]), None);
    }
}
